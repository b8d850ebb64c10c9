#include "CCrypto.h"

#include <dlfcn.h>
#include <pthread.h>

static struct {
    int is_loaded;
#define DECLARE(result, name, parameters, arguments) result(*name) parameters;
    HOLDFAST_FUNCTIONS(DECLARE)
} crypto;

static void load_once(void) {
    void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    int is_complete = 1;
#define LOAD(result, name, parameters, arguments)                                                                      \
    *(void **)&crypto.name = dlsym(library, #name);                                                                      \
    is_complete = is_complete && crypto.name != NULL;
    HOLDFAST_FUNCTIONS(LOAD)
    crypto.is_loaded = is_complete;
}

int crypto_is_available(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_once);
    return crypto.is_loaded;
}

#define DEFINE(result, name, parameters, arguments)                                                                    \
    result name parameters {                                                                                           \
        crypto_is_available();                                                                                      \
        return crypto.name arguments;                                                                                        \
    }
HOLDFAST_FUNCTIONS(DEFINE)
