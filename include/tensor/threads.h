// The threads that compute on the CPU: one pool, which everything in the process shares. The
// calling thread always takes part, so there is one thread less in the pool than cores.
#pragma once

#include <memory>

#include "tensor/export.h"

namespace tensor {

/// How many threads compute where nobody says otherwise: one per core that the calling thread may
/// use, by its affinity (taskset) and the quota of its control group (a container's), and no more
/// than OMP_NUM_THREADS, OMP_THREAD_LIMIT and set_threads say. At least 1.
TENSOR_API int threads();

/// No more than so many threads compute from now on, those that call among them; 0: as many as
/// there are cores. Executables take it as it is when they are compiled, and never use more than it
/// is when they run. UserError if `count` is negative.
TENSOR_API void set_threads(int count);

/// How long a thread that has nothing to do looks for work before it sleeps: a pool's for the next
/// loop, a caller for a part of its loop that another thread is at. More is quicker to start, less
/// leaves the core to others. At first TENSOR_SPIN_US in the environment, or 200. UserError if
/// negative. CompileOptions::spin_us is that of one executable.
TENSOR_API void set_spin(int microseconds);

/// Threads of a host program, which compute in place of the pool's.
class TENSOR_API Executor {
 public:
  virtual ~Executor() = default;
  /// How many threads it has.
  virtual int threads() const = 0;
  /// Lets one of its threads call job(data) once, however late: nobody waits for what has not
  /// begun, and a job that comes late does nothing. Called by any number of threads; must neither
  /// throw nor call the job itself.
  virtual void submit(void (*job)(void* data), void* data) = 0;
};

/// From now on loops run on the executor's threads, besides the caller; nullptr: on the pool's own
/// again. Kept until its last loop has ended. A forked child has a pool of its own again.
TENSOR_API void set_executor(std::shared_ptr<Executor> executor);

}  // namespace tensor
