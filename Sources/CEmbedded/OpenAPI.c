#include "CEmbedded.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const unsigned char document[] = {
#embed "../HoldfastAPI/openapi.json" suffix(, 0)
};

const unsigned char *embedded_openapi(void) {
    return document;
}
