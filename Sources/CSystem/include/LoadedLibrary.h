// Loads a library when it is first used. A C target defines HOLDFAST_LIBRARY, the library's soname, and HOLDFAST_FUNCTIONS(F),
// the return type, name, parameters and arguments of each function, and includes this in one source file: it defines
// `library`, with a pointer to each function, and `library_is_available`.
#include <dlfcn.h>
#include <pthread.h>

static struct {
    int is_loaded;
#define HOLDFAST_POINTER(result, name, parameters, arguments) result(*name) parameters;
    HOLDFAST_FUNCTIONS(HOLDFAST_POINTER)
} library;

static void load_library(void) {
    void *handle = dlopen(HOLDFAST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == 0) return;
    int is_complete = 1;
#define HOLDFAST_LOAD(result, name, parameters, arguments)                                                             \
    *(void **)&library.name = dlsym(handle, #name);                                                                    \
    is_complete = is_complete && library.name != 0;
    HOLDFAST_FUNCTIONS(HOLDFAST_LOAD)
    library.is_loaded = is_complete;
}

static int library_is_available(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    return library.is_loaded;
}

/// Defines a function that calls the library's function of its name.
#define HOLDFAST_DEFINE(result, name, parameters, arguments)                                                           \
    result name parameters {                                                                                           \
        library_is_available();                                                                                        \
        return library.name arguments;                                                                                 \
    }
