#include "CYAML.h"

#define HOLDFAST_LIBRARY "libyaml-0.so.2"
#include "LoadedLibrary.h"

int yaml_is_available(void) { return library_is_available(); }

HOLDFAST_FUNCTIONS(HOLDFAST_DEFINE)
