#ifndef HOLDFAST_CHTTPCLIENT_H
#define HOLDFAST_CHTTPCLIENT_H

#include <stddef.h>

struct http_response {
    /// 0 if there was no response.
    long status;
    /// To be freed.
    unsigned char *body;
    size_t length;
    /// Why there was no response.
    char error[256];
};

/// Makes one request by HTTP or HTTPS with libcurl, which is loaded only now: no other command needs it, and the server
/// does not.
///
/// - Parameter fields: header fields as they are sent, the last one NULL.
/// - Parameter seconds: the time limit for the whole exchange.
struct http_response http_client_send(const char *method, const char *url, const char *const *fields,
                                      const unsigned char *body, size_t length, long seconds);

#endif
