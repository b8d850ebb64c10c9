// Tells ThreadSanitizer of locks that it cannot see. When two threads want a `Synchronization.Mutex` at once, the kernel
// hands it from one to the other (FUTEX_LOCK_PI), behind the sanitizer's back, which then takes what the mutex guards
// for a race. This library stands before Swift's own (LD_PRELOAD) and says so in the three functions that ask the kernel.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context))

#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

// Of the sanitizer's runtime, in the programs that have it.
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

typedef SWIFT void lock_function(uint32_t thread, SELF void *mutex);
typedef SWIFT bool try_lock_function(SELF void *mutex);
typedef SWIFT void unlock_function(SELF void *mutex);

SWIFT void lock_slowly(uint32_t thread, SELF void *mutex) __asm__(LOCK);
SWIFT bool try_lock_slowly(SELF void *mutex) __asm__(TRY_LOCK);
SWIFT void unlock_slowly(SELF void *mutex) __asm__(UNLOCK);

SWIFT void lock_slowly(uint32_t thread, SELF void *mutex) {
    ((lock_function *)dlsym(RTLD_NEXT, LOCK))(thread, mutex);
    if (__tsan_acquire != NULL) __tsan_acquire(mutex);
}

SWIFT bool try_lock_slowly(SELF void *mutex) {
    bool is_locked = ((try_lock_function *)dlsym(RTLD_NEXT, TRY_LOCK))(mutex);
    if (is_locked && __tsan_acquire != NULL) __tsan_acquire(mutex);
    return is_locked;
}

SWIFT void unlock_slowly(SELF void *mutex) {
    if (__tsan_release != NULL) __tsan_release(mutex);
    ((unlock_function *)dlsym(RTLD_NEXT, UNLOCK))(mutex);
}
