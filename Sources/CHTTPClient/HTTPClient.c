#include "CHTTPClient.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The part of libcurl's binary interface that is used. It has been stable since version 7.16; its headers are not needed to
// build the server.
enum {
    OPTION_LOW_SPEED_LIMIT = 19,
    OPTION_LOW_SPEED_TIME = 20,
    OPTION_NOPROGRESS = 43,
    OPTION_NOBODY = 44,
    OPTION_FRESH_CONNECT = 74,
    OPTION_NOSIGNAL = 99,
    OPTION_TIMEOUT_MS = 155,
    OPTION_CONNECTTIMEOUT_MS = 156,
    OPTION_PROTOCOLS = 181,
    OPTION_WRITEDATA = 10001,
    OPTION_URL = 10002,
    OPTION_ERRORBUFFER = 10010,
    OPTION_POSTFIELDS = 10015,
    OPTION_HTTPHEADER = 10023,
    OPTION_HEADERDATA = 10029,
    OPTION_CUSTOMREQUEST = 10036,
    OPTION_XFERINFODATA = 10057,
    OPTION_WRITEFUNCTION = 20011,
    OPTION_HEADERFUNCTION = 20079,
    OPTION_XFERINFOFUNCTION = 20219,
    OPTION_POSTFIELDSIZE_LARGE = 30120,
    INFO_RESPONSE_CODE = 0x200000 + 2,
    INFO_REQUEST_SIZE = 0x200000 + 12,
    INIT_DEFAULT = 3,
    // HTTP and HTTPS.
    PROTOCOLS = 1 | 2,
};

static struct {
    int is_loaded;
    int (*init)(long);
    void *(*open)(void);
    void (*reset)(void *);
    int (*set)(void *, int, ...);
    int (*perform)(void *);
    int (*info)(void *, int, ...);
    void (*close)(void *);
    const char *(*describe)(int);
    void *(*append)(void *, const char *);
    void (*discard)(void *);
} curl;

static void load_once(void) {
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    *(void **)&curl.init = dlsym(library, "curl_global_init");
    *(void **)&curl.open = dlsym(library, "curl_easy_init");
    *(void **)&curl.reset = dlsym(library, "curl_easy_reset");
    *(void **)&curl.set = dlsym(library, "curl_easy_setopt");
    *(void **)&curl.perform = dlsym(library, "curl_easy_perform");
    *(void **)&curl.info = dlsym(library, "curl_easy_getinfo");
    *(void **)&curl.close = dlsym(library, "curl_easy_cleanup");
    *(void **)&curl.describe = dlsym(library, "curl_easy_strerror");
    *(void **)&curl.append = dlsym(library, "curl_slist_append");
    *(void **)&curl.discard = dlsym(library, "curl_slist_free_all");
    curl.is_loaded = curl.init && curl.open && curl.reset && curl.set && curl.perform && curl.info && curl.close
                     && curl.describe && curl.append && curl.discard && curl.init(INIT_DEFAULT) == 0;
}

static int load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_once);
    return curl.is_loaded;
}

struct http_client {
    void *handle;
};

struct http_client *http_client_open(void) {
    if (!load()) return NULL;
    struct http_client *client = malloc(sizeof *client);
    if (client == NULL) return NULL;
    client->handle = curl.open();
    if (client->handle != NULL) return client;
    free(client);
    return NULL;
}

void http_client_close(struct http_client *client) {
    curl.close(client->handle);
    free(client);
}

static size_t receive_piece(char *bytes, size_t size, size_t count, void *context) {
    const struct http_request *request = context;
    return request->receive(request->context, (const unsigned char *)bytes, size * count) ? size * count : 0;
}

static size_t receive_field(char *bytes, size_t size, size_t count, void *context) {
    const struct http_request *request = context;
    if (request->receive_field != NULL) request->receive_field(request->context, bytes, size * count);
    return size * count;
}

static int progress(void *context, long long a, long long b, long long c, long long d) {
    (void)a, (void)b, (void)c, (void)d;
    const struct http_request *request = context;
    return request->is_cancelled(request->context);
}

long http_client_perform(struct http_client *client, const struct http_request *request, char error[256]) {
    void *handle = client->handle;
    void *list = NULL;
    error[0] = '\0';
    // Keeps connections.
    curl.reset(handle);
    for (const char *const *field = request->fields; *field != NULL; field++) list = curl.append(list, *field);
    curl.set(handle, OPTION_URL, request->url);
    curl.set(handle, OPTION_PROTOCOLS, (long)PROTOCOLS);
    curl.set(handle, OPTION_HTTPHEADER, list);
    curl.set(handle, OPTION_NOSIGNAL, 1L);
    curl.set(handle, OPTION_ERRORBUFFER, error);
    curl.set(handle, OPTION_CONNECTTIMEOUT_MS, request->connect_milliseconds);
    curl.set(handle, OPTION_TIMEOUT_MS, request->milliseconds);
    if (request->idle_seconds > 0) {
        curl.set(handle, OPTION_LOW_SPEED_LIMIT, 1L);
        curl.set(handle, OPTION_LOW_SPEED_TIME, request->idle_seconds);
    }
    if (request->is_sent_once) curl.set(handle, OPTION_FRESH_CONNECT, 1L);
    curl.set(handle, OPTION_WRITEFUNCTION, receive_piece);
    curl.set(handle, OPTION_WRITEDATA, request);
    curl.set(handle, OPTION_HEADERFUNCTION, receive_field);
    curl.set(handle, OPTION_HEADERDATA, request);
    curl.set(handle, OPTION_XFERINFOFUNCTION, progress);
    curl.set(handle, OPTION_XFERINFODATA, request);
    curl.set(handle, OPTION_NOPROGRESS, 0L);
    if (request->body != NULL) {
        curl.set(handle, OPTION_POSTFIELDSIZE_LARGE, (long long)request->length);
        curl.set(handle, OPTION_POSTFIELDS, request->body);
    }
    if (strcmp(request->method, "HEAD") == 0) curl.set(handle, OPTION_NOBODY, 1L);
    curl.set(handle, OPTION_CUSTOMREQUEST, request->method);
    int code = curl.perform(handle);
    long status = 0;
    if (code == 0) {
        curl.info(handle, INFO_RESPONSE_CODE, &status);
    } else {
        // Whatever has failed: what was sent may have been received.
        long sent = 0;
        curl.info(handle, INFO_REQUEST_SIZE, &sent);
        if (sent > 0) status = -1;
    }
    if (code != 0 && error[0] == '\0') snprintf(error, 256, "%s", curl.describe(code));
    curl.discard(list);
    return status;
}

static int collect(void *context, const unsigned char *bytes, size_t length) {
    struct http_response *response = context;
    unsigned char *grown = realloc(response->body, response->length + length + 1);
    if (grown == NULL) return 0;
    memcpy(grown + response->length, bytes, length);
    response->body = grown;
    response->length += length;
    return 1;
}

static int never(void *context) {
    (void)context;
    return 0;
}

struct http_response http_client_send(const char *method, const char *url, const char *const *fields,
                                      const unsigned char *body, size_t length, long seconds) {
    struct http_response response = {0};
    struct http_client *client = http_client_open();
    if (client == NULL) {
        snprintf(response.error, sizeof response.error, "it needs libcurl.so.4 (Debian's package libcurl4)");
        return response;
    }
    struct http_request request = {
        .method = method,
        .url = url,
        .fields = fields,
        .body = body,
        .length = length,
        .milliseconds = seconds * 1000,
        .context = &response,
        .receive = collect,
        .is_cancelled = never,
    };
    response.status = http_client_perform(client, &request, response.error);
    if (response.status < 0) response.status = 0;
    http_client_close(client);
    return response;
}
