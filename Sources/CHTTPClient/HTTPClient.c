#include "CHTTPClient.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
    OPTION_OPENSOCKETDATA = 10164,
    OPTION_WRITEFUNCTION = 20011,
    OPTION_HEADERFUNCTION = 20079,
    OPTION_OPENSOCKETFUNCTION = 20163,
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

int http_client_is_available(void) { return load(); }

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

static int is_public_ipv4(uint32_t address) {
    // Of 0.0.0.0/8 … 240.0.0.0/4: those that RFC 6890 does not call global.
    static const struct {
        uint32_t network;
        int bits;
    } others[] = {
        {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},  {0xA9FE0000, 16}, {0xAC100000, 12},
        {0xC0000000, 24}, {0xC0000200, 24}, {0xC0A80000, 16}, {0xC6120000, 15}, {0xC6336400, 24}, {0xCB007100, 24},
        {0xE0000000, 4},  {0xF0000000, 4},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if ((address ^ others[i].network) >> (32 - others[i].bits) == 0) return 0;
    }
    return 1;
}

static uint32_t embedded_ipv4(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

int http_is_public_address(const void *address) {
    const struct sockaddr *given = address;
    if (given->sa_family == AF_INET) {
        return is_public_ipv4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    }
    if (given->sa_family != AF_INET6) return 0;
    const unsigned char *bytes = ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
    static const unsigned char mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    static const unsigned char translated[12] = {0x00, 0x64, 0xFF, 0x9B};
    if (memcmp(bytes, mapped, 12) == 0 || memcmp(bytes, translated, 12) == 0) {
        return is_public_ipv4(embedded_ipv4(bytes + 12));
    }
    // 6to4.
    if (bytes[0] == 0x20 && bytes[1] == 0x02) return is_public_ipv4(embedded_ipv4(bytes + 2));
    // Teredo and what is for documents.
    if (bytes[0] == 0x20 && bytes[1] == 0x01 && (bytes[2] | bytes[3]) == 0) return 0;
    if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0x0D && bytes[3] == 0xB8) return 0;
    // Everything global is in 2000::/3.
    return bytes[0] >> 5 == 1;
}

// The layout of `struct curl_sockaddr`.
struct socket_address {
    int family;
    int type;
    int protocol;
    unsigned length;
    struct sockaddr address;
};

static int open_public_socket(void *context, int purpose, struct socket_address *target) {
    (void)purpose;
    if (!http_is_public_address(&target->address)) {
        *(int *)context = 1;
        return -1;
    }
    return socket(target->family, target->type | SOCK_CLOEXEC, target->protocol);
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
    int is_private = 0;
    if (request->refuses_private_addresses) {
        curl.set(handle, OPTION_OPENSOCKETFUNCTION, open_public_socket);
        curl.set(handle, OPTION_OPENSOCKETDATA, &is_private);
    }
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
    if (code != 0 && is_private) snprintf(error, 256, "its address is not public");
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
        snprintf(response.error, sizeof response.error, "it needs libcurl: apt-get install libcurl4");
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

struct delivery {
    size_t length;
    long status;
};

enum { LONGEST_RECEIPT = 64 * 1024 };

static int take_receipt(void *context, const unsigned char *bytes, size_t length) {
    struct delivery *delivery = context;
    (void)bytes;
    delivery->length += length;
    return delivery->length <= LONGEST_RECEIPT;
}

static void take_status(void *context, const char *bytes, size_t length) {
    struct delivery *delivery = context;
    long status = 0;
    char line[32];
    snprintf(line, sizeof line, "%.*s", (int)(length < 31 ? length : 31), bytes);
    if (sscanf(line, "HTTP/%*s %3ld", &status) == 1 && status >= 200) delivery->status = status;
}

long http_deliver(const char *url, const char *const *fields, const unsigned char *body, size_t length,
                  long milliseconds, int refuses_private_addresses, char error[256]) {
    struct http_client *client = http_client_open();
    if (client == NULL) {
        snprintf(error, 256, "it needs libcurl: apt-get install libcurl4");
        return 0;
    }
    struct delivery delivery = {0};
    struct http_request request = {
        .method = "POST",
        .url = url,
        .fields = fields,
        .body = body,
        .length = length,
        .milliseconds = milliseconds,
        .is_sent_once = 1,
        .refuses_private_addresses = refuses_private_addresses,
        .context = &delivery,
        .receive = take_receipt,
        .receive_field = take_status,
        .is_cancelled = never,
    };
    http_client_perform(client, &request, error);
    http_client_close(client);
    return delivery.status;
}
