// The part of libcrypto's binary interface (OpenSSL 3) that is used. Its headers are not needed to build the server, which
// loads the library at the first use. A test compares this with the headers.
#ifndef HOLDFAST_CCRYPTO_H
#define HOLDFAST_CCRYPTO_H

#include <stddef.h>

#ifndef HOLDFAST_REAL_TYPES
typedef struct evp_md_st EVP_MD;
typedef struct evp_md_ctx_st EVP_MD_CTX;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_pkey_ctx_st EVP_PKEY_CTX;
typedef struct engine_st ENGINE;
#endif

// The return type, name, parameters and arguments of each function.
#define HOLDFAST_FUNCTIONS(F)                                                                                          \
    F(const EVP_MD *, EVP_sha256, (void), ())                                                                          \
    F(unsigned char *, HMAC,                                                                                           \
      (const EVP_MD *digest, const void *key, int key_length, const unsigned char *bytes, size_t length,               \
       unsigned char *code, unsigned *code_length),                                                                    \
      (digest, key, key_length, bytes, length, code, code_length))                                                     \
    F(int, EVP_Digest,                                                                                                 \
      (const void *bytes, size_t length, unsigned char *hash, unsigned *hash_length, const EVP_MD *digest,             \
       ENGINE *engine),                                                                                                \
      (bytes, length, hash, hash_length, digest, engine))                                                              \
    F(EVP_MD_CTX *, EVP_MD_CTX_new, (void), ())                                                                        \
    F(void, EVP_MD_CTX_free, (EVP_MD_CTX * context), (context))                                                        \
    F(int, EVP_DigestVerifyInit,                                                                                       \
      (EVP_MD_CTX * context, EVP_PKEY_CTX * *key_context, const EVP_MD *digest, ENGINE *engine, EVP_PKEY *key),        \
      (context, key_context, digest, engine, key))                                                                     \
    F(int, EVP_DigestVerify,                                                                                           \
      (EVP_MD_CTX * context, const unsigned char *signature, size_t signature_length, const unsigned char *bytes,      \
       size_t length),                                                                                                 \
      (context, signature, signature_length, bytes, length))                                                           \
    F(EVP_PKEY *, d2i_PUBKEY, (EVP_PKEY * *key, const unsigned char **bytes, long length), (key, bytes, length))       \
    F(void, EVP_PKEY_free, (EVP_PKEY * key), (key))                                                                    \
    F(int, EVP_DecodeBlock, (unsigned char *to, const unsigned char *from, int length), (to, from, length))            \
    F(void, ERR_clear_error, (void), ())

/// Whether libcrypto is installed; without it, no other function may be called.
int crypto_is_available(void);

#ifndef HOLDFAST_REAL_TYPES
// Hidden: what libcrypto calls of its own must not be found here.
#define HOLDFAST_DECLARE(result, name, parameters, arguments)                                                          \
    __attribute__((visibility("hidden"))) result name parameters;
HOLDFAST_FUNCTIONS(HOLDFAST_DECLARE)
#endif

#endif
