// Nothing: the headers are compiled with this file.
