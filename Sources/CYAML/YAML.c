#include "CYAML.h"

#include <dlfcn.h>
#include <pthread.h>

static struct {
    int is_loaded;
#define DECLARE(result, name, parameters, arguments) result(*name) parameters;
    HOLDFAST_FUNCTIONS(DECLARE)
} yaml;

static void load_once(void) {
    void *library = dlopen("libyaml-0.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    int is_complete = 1;
#define LOAD(result, name, parameters, arguments)                                                                      \
    *(void **)&yaml.name = dlsym(library, #name);                                                                      \
    is_complete = is_complete && yaml.name != NULL;
    HOLDFAST_FUNCTIONS(LOAD)
    yaml.is_loaded = is_complete;
}

int yaml_is_available(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_once);
    return yaml.is_loaded;
}

#define DEFINE(result, name, parameters, arguments)                                                                    \
    result name parameters {                                                                                           \
        yaml_is_available();                                                                                      \
        return yaml.name arguments;                                                                                        \
    }
HOLDFAST_FUNCTIONS(DEFINE)
