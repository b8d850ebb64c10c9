#include "CHTTPClient.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of libcurl's binary interface that is used. It has been stable since version 7.16; its headers are not needed to
// build the server.
enum {
    OPTION_WRITEDATA = 10001,
    OPTION_URL = 10002,
    OPTION_ERRORBUFFER = 10010,
    OPTION_POSTFIELDS = 10015,
    OPTION_HTTPHEADER = 10023,
    OPTION_CUSTOMREQUEST = 10036,
    OPTION_WRITEFUNCTION = 20011,
    OPTION_POSTFIELDSIZE_LARGE = 30120,
    OPTION_NOSIGNAL = 99,
    OPTION_TIMEOUT = 13,
    OPTION_PROTOCOLS = 181,
    INFO_RESPONSE_CODE = 0x200000 + 2,
    INIT_DEFAULT = 3,
    // HTTP and HTTPS.
    PROTOCOLS = 1 | 2,
};

struct curl {
    int (*init)(long);
    void *(*open)(void);
    int (*set)(void *, int, ...);
    int (*perform)(void *);
    int (*info)(void *, int, ...);
    void (*close)(void *);
    const char *(*describe)(int);
    void *(*append)(void *, const char *);
    void (*discard)(void *);
};

static int load(struct curl *curl) {
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 0;
    *(void **)&curl->init = dlsym(library, "curl_global_init");
    *(void **)&curl->open = dlsym(library, "curl_easy_init");
    *(void **)&curl->set = dlsym(library, "curl_easy_setopt");
    *(void **)&curl->perform = dlsym(library, "curl_easy_perform");
    *(void **)&curl->info = dlsym(library, "curl_easy_getinfo");
    *(void **)&curl->close = dlsym(library, "curl_easy_cleanup");
    *(void **)&curl->describe = dlsym(library, "curl_easy_strerror");
    *(void **)&curl->append = dlsym(library, "curl_slist_append");
    *(void **)&curl->discard = dlsym(library, "curl_slist_free_all");
    return curl->init && curl->open && curl->set && curl->perform && curl->info && curl->close && curl->describe
           && curl->append && curl->discard;
}

static size_t receive(char *bytes, size_t size, size_t count, void *context) {
    struct http_response *response = context;
    size_t length = size * count;
    unsigned char *grown = realloc(response->body, response->length + length + 1);
    if (grown == NULL) return 0;
    memcpy(grown + response->length, bytes, length);
    response->body = grown;
    response->length += length;
    return length;
}

struct http_response http_client_send(const char *method, const char *url, const char *const *fields,
                                      const unsigned char *body, size_t length, long seconds) {
    struct http_response response = {0};
    struct curl curl = {0};
    if (!load(&curl)) {
        snprintf(response.error, sizeof response.error, "it needs libcurl.so.4 (Debian's package libcurl4)");
        return response;
    }
    curl.init(INIT_DEFAULT);
    void *handle = curl.open();
    void *list = NULL;
    for (; *fields != NULL; fields++) list = curl.append(list, *fields);
    curl.set(handle, OPTION_URL, url);
    curl.set(handle, OPTION_PROTOCOLS, (long)PROTOCOLS);
    curl.set(handle, OPTION_HTTPHEADER, list);
    curl.set(handle, OPTION_NOSIGNAL, 1L);
    curl.set(handle, OPTION_TIMEOUT, seconds);
    curl.set(handle, OPTION_ERRORBUFFER, response.error);
    curl.set(handle, OPTION_WRITEFUNCTION, receive);
    curl.set(handle, OPTION_WRITEDATA, &response);
    if (body != NULL) {
        curl.set(handle, OPTION_POSTFIELDSIZE_LARGE, (long long)length);
        curl.set(handle, OPTION_POSTFIELDS, body);
    }
    curl.set(handle, OPTION_CUSTOMREQUEST, method);
    int code = curl.perform(handle);
    if (code == 0) curl.info(handle, INFO_RESPONSE_CODE, &response.status);
    if (code != 0 && response.error[0] == '\0') {
        snprintf(response.error, sizeof response.error, "%s", curl.describe(code));
    }
    curl.discard(list);
    curl.close(handle);
    return response;
}
