#!/usr/bin/env bash
# The Debian packages of a build: what they hold works from a folder of its own, and lintian, where it is installed, has
# nothing against them.
#   deb.sh BUILD_DIR SOURCE_DIR CXX
set -euo pipefail
build=$1 source=$2 cxx=$3
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { echo "needs $tool (Debian: dpkg-dev)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpack --config "$build/CPackConfig.cmake" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip -G DEB -B "$work/debs" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; exit 1; }
[ "$(ls "$work"/debs/*.deb | wc -l)" = 3 ] || { ls "$work/debs"; exit 1; }
for deb in "$work"/debs/*.deb; do
  dpkg-deb -x "$deb" "$work/root"
  dpkg-deb -f "$deb" Package Depends
done
if command -v lintian >/dev/null; then
  # The project has no address and no manual pages, CPack writes scripts that call ldconfig, and this build, unlike that of the preset "deb", is for no folder of
  # one architecture; a package of two libraries is called as one of them.
  lintian --allow-root --fail-on error,warning --suppress-tags \
    bogus-mail-host,bogus-mail-host-in-debian-changelog,no-manual-page,maintscript-calls-ldconfig,pkg-config-unavailable-for-cross-compilation,package-name-doesnt-match-sonames \
    "$work"/debs/*.deb
else
  echo "without lintian"
fi

usr=$work/root/usr
library=$(dirname "$(find "$usr" -name 'libtensor_c.so.0')")
export LD_LIBRARY_PATH=$library
cd "$work"
got=$("$usr/bin/vit" --checkpoint "$usr/share/tensor/models/vit/pretrained/digits" --top 1 "$usr/share/tensor/examples/images/digits/digit-8.png" | tail -n 1)
[ "$got" = "   91.9 %  8" ] || { echo "vit: got '$got'"; exit 1; }
timeout 5 "$usr/bin/demo-server" --port 0 >server.log 2>&1 || [ $? = 124 ] || [ $? = 0 ]
grep -q '^demo-server: http' server.log || { cat server.log; exit 1; }

bash "$source/tests/package/first_program.sh" "$usr" "$source" "$cxx"
echo "three packages, whose programs run and from which README's first program is built"
