// The files of the console, embedded by the preprocessor: it copies the bytes of a file in no time, where an array in
// Swift would be parsed number by number. A file of the page needs a line in each of the two lists.

#include "CConsole.h"

#pragma clang diagnostic ignored "-Wc23-extensions"

static const unsigned char index_html[] = {
#embed "../HoldfastAPI/Console/Page/index.html"
};
static const unsigned char style_css[] = {
#embed "../HoldfastAPI/Console/Page/style.css"
};
static const unsigned char icon_svg[] = {
#embed "../HoldfastAPI/Console/Page/icon.svg"
};
static const unsigned char app_js[] = {
#embed "../HoldfastAPI/Console/Page/app.js"
};
static const unsigned char api_js[] = {
#embed "../HoldfastAPI/Console/Page/api.js"
};
static const unsigned char dom_js[] = {
#embed "../HoldfastAPI/Console/Page/dom.js"
};
static const unsigned char format_js[] = {
#embed "../HoldfastAPI/Console/Page/format.js"
};
static const unsigned char parts_js[] = {
#embed "../HoldfastAPI/Console/Page/parts.js"
};
static const unsigned char charts_js[] = {
#embed "../HoldfastAPI/Console/Page/charts.js"
};
static const unsigned char palette_js[] = {
#embed "../HoldfastAPI/Console/Page/palette.js"
};
static const unsigned char users_js[] = {
#embed "../HoldfastAPI/Console/Page/users.js"
};
static const unsigned char experiments_js[] = {
#embed "../HoldfastAPI/Console/Page/experiments.js"
};
static const unsigned char experiment_form_js[] = {
#embed "../HoldfastAPI/Console/Page/experiment-form.js"
};
static const unsigned char conditions_js[] = {
#embed "../HoldfastAPI/Console/Page/conditions.js"
};
static const unsigned char results_js[] = {
#embed "../HoldfastAPI/Console/Page/results.js"
};
static const unsigned char flags_js[] = {
#embed "../HoldfastAPI/Console/Page/flags.js"
};
static const unsigned char live_js[] = {
#embed "../HoldfastAPI/Console/Page/live.js"
};
static const unsigned char audit_js[] = {
#embed "../HoldfastAPI/Console/Page/audit.js"
};
static const unsigned char attributes_js[] = {
#embed "../HoldfastAPI/Console/Page/attributes.js"
};
static const unsigned char datafiles_js[] = {
#embed "../HoldfastAPI/Console/Page/datafiles.js"
};

#define FILE_OF(name, array) { name, array, sizeof array }

static const struct cconsole_file files[] = {
    FILE_OF("index.html", index_html),
    FILE_OF("style.css", style_css),
    FILE_OF("icon.svg", icon_svg),
    FILE_OF("app.js", app_js),
    FILE_OF("api.js", api_js),
    FILE_OF("dom.js", dom_js),
    FILE_OF("format.js", format_js),
    FILE_OF("parts.js", parts_js),
    FILE_OF("charts.js", charts_js),
    FILE_OF("palette.js", palette_js),
    FILE_OF("users.js", users_js),
    FILE_OF("experiments.js", experiments_js),
    FILE_OF("experiment-form.js", experiment_form_js),
    FILE_OF("conditions.js", conditions_js),
    FILE_OF("results.js", results_js),
    FILE_OF("flags.js", flags_js),
    FILE_OF("live.js", live_js),
    FILE_OF("audit.js", audit_js),
    FILE_OF("attributes.js", attributes_js),
    FILE_OF("datafiles.js", datafiles_js),
};

unsigned long cconsole_count(void) {
    return sizeof files / sizeof files[0];
}

const struct cconsole_file *cconsole_file(unsigned long index) {
    return index < cconsole_count() ? &files[index] : 0;
}
