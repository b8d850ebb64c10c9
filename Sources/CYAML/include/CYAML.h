// The part of libyaml's binary interface that is used. It has been stable since version 0.1; its headers are not needed to
// build the server, which loads the library at the first use. A test compares this with the headers.
#ifndef HOLDFAST_CYAML_H
#define HOLDFAST_CYAML_H

#include <stddef.h>

#ifndef HOLDFAST_REAL_TYPES
typedef unsigned char yaml_char_t;

typedef struct {
    size_t index;
    size_t line;
    size_t column;
} yaml_mark_t;

/// The beginning, and as many bytes behind it as the library needs.
typedef struct {
    int error;
    const char *problem;
    size_t problem_offset;
    int problem_value;
    yaml_mark_t problem_mark;
    void *rest[64];
} yaml_parser_t;

typedef enum {
    YAML_STREAM_END_EVENT = 2,
    YAML_DOCUMENT_START_EVENT = 3,
    YAML_ALIAS_EVENT = 5,
    YAML_SCALAR_EVENT = 6,
    YAML_SEQUENCE_START_EVENT = 7,
    YAML_SEQUENCE_END_EVENT = 8,
    YAML_MAPPING_START_EVENT = 9,
    YAML_MAPPING_END_EVENT = 10,
} yaml_event_type_t;

typedef enum { YAML_PLAIN_SCALAR_STYLE = 1 } yaml_scalar_style_t;

typedef struct {
    yaml_event_type_t type;
    union {
        struct {
            yaml_char_t *anchor;
        } alias;
        struct {
            yaml_char_t *anchor;
            yaml_char_t *tag;
            yaml_char_t *value;
            size_t length;
            int plain_implicit;
            int quoted_implicit;
            yaml_scalar_style_t style;
        } scalar;
        struct {
            yaml_char_t *anchor;
            yaml_char_t *tag;
        } sequence_start;
        struct {
            yaml_char_t *anchor;
            yaml_char_t *tag;
        } mapping_start;
    } data;
    yaml_mark_t start_mark;
    yaml_mark_t end_mark;
} yaml_event_t;
#endif

// The return type, name, parameters and arguments of each function.
#define HOLDFAST_FUNCTIONS(F)                                                                                          \
    F(int, yaml_parser_initialize, (yaml_parser_t * parser), (parser))                                                 \
    F(void, yaml_parser_delete, (yaml_parser_t * parser), (parser))                                                    \
    F(void, yaml_parser_set_input_string, (yaml_parser_t * parser, const unsigned char *input, size_t size),           \
      (parser, input, size))                                                                                           \
    F(int, yaml_parser_parse, (yaml_parser_t * parser, yaml_event_t * event), (parser, event))                         \
    F(void, yaml_event_delete, (yaml_event_t * event), (event))

/// Whether libyaml is installed; without it, no other function may be called.
int yaml_is_available(void);

#ifndef HOLDFAST_REAL_TYPES
// Hidden: what libyaml calls of its own must not be found here.
#define HOLDFAST_DECLARE(result, name, parameters, arguments)                                                          \
    __attribute__((visibility("hidden"))) result name parameters;
HOLDFAST_FUNCTIONS(HOLDFAST_DECLARE)
#endif

#endif
