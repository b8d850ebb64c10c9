#ifndef HOLDFAST_CHTTPCLIENT_H
#define HOLDFAST_CHTTPCLIENT_H

#include <stddef.h>

// Requests by HTTP or HTTPS with libcurl, which is loaded at the first use: a server that sends none does not need it.

struct http_response {
    /// 0 if there was no response.
    long status;
    /// To be freed.
    unsigned char *body;
    size_t length;
    /// Why there was no response.
    char error[256];
};

/// Makes one request.
///
/// - Parameter fields: header fields as they are sent, the last one NULL.
/// - Parameter seconds: the time limit for the whole exchange.
struct http_response http_client_send(const char *method, const char *url, const char *const *fields,
                                      const unsigned char *body, size_t length, long seconds);

/// A client that keeps its connections open. Used by one thread at a time.
struct http_client;

struct http_request {
    const char *method;
    const char *url;
    /// Header fields as they are sent, the last one NULL.
    const char *const *fields;
    /// NULL for a request without a body.
    const unsigned char *body;
    size_t length;
    /// Time limits in milliseconds for the connection and for the whole exchange; 0 for none.
    long connect_milliseconds;
    long milliseconds;
    /// The exchange fails if nothing arrives for this long; 0 for no such limit.
    long idle_seconds;
    /// Whether to open a new connection. A request on an old one that the server has just closed is sent again.
    int is_sent_once;
    /// Whether to connect to no address of a host or network that is not public.
    int refuses_private_addresses;
    /// Passed to the functions.
    void *context;
    /// Takes a piece of the body. The exchange fails unless it returns 1.
    int (*receive)(void *context, const unsigned char *bytes, size_t length);
    /// Takes a line of a header, of the last response at last; NULL for nothing.
    void (*receive_field)(void *context, const char *bytes, size_t length);
    /// Whether to give up, asked about once a second.
    int (*is_cancelled)(void *context);
};

/// Whether libcurl is installed.
int http_client_is_available(void);

/// Returns NULL if libcurl is missing.
struct http_client *http_client_open(void);

void http_client_close(struct http_client *client);

/// Makes a request.
///
/// - Parameter error: says why there was no complete response.
/// - Returns: the status; 0 if there was no complete response, -1 if it did not come in time after the request was sent.
long http_client_perform(struct http_client *client, const struct http_request *request, char error[256]);

/// Sends a message. Redirects are not followed, and of a response only the status counts, whatever becomes of its body.
///
/// - Returns: the status; 0 if there was none.
long http_deliver(const char *url, const char *const *fields, const unsigned char *body, size_t length,
                  long milliseconds, int refuses_private_addresses, char error[256]);

/// Whether a `struct sockaddr` of IPv4 or IPv6 is one that anybody can reach (RFC 6890), also where it is within another.
int http_is_public_address(const void *address);

#endif
