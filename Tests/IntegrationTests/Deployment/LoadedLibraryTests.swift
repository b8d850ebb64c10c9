import APITestSupport
import Foundation
import JSON
import ProcessTestSupport
import Testing

/// Libraries that the server loads when it needs them: what it declares of them is what their headers say, and without one
/// of them everything else works.
@Suite struct LoadedLibraryTests {
    struct Library: Sendable, CustomTestStringConvertible {
        let name: String
        /// Below `Sources`.
        let declarations: String
        let headers: [String]
        var options: [String] = []
        /// The members of each structure that are used.
        let members: [String: [String]]

        var testDescription: String { name }

        var isInstalled: Bool {
            let folders = ["/usr/include"] + options.map { String($0.dropFirst(2)) }
            return folders.contains { FileManager.default.fileExists(atPath: "\($0)/\(headers[0])") }
        }
    }

    static let libraries = [
        Library(
            name: "zlib", declarations: "CGzip/Zlib.h", headers: ["zlib.h"],
            members: [
                "z_stream": [
                    "next_in", "avail_in", "total_in", "next_out", "avail_out", "total_out", "zalloc", "zfree",
                    "opaque",
                ]
            ]),
        Library(
            name: "libyaml", declarations: "CYAML/include/CYAML.h", headers: ["yaml.h"],
            members: [
                "yaml_parser_t": ["error", "problem", "problem_mark.line"],
                "yaml_event_t": [
                    "type", "data.alias.anchor", "data.scalar.anchor", "data.scalar.tag", "data.scalar.value",
                    "data.scalar.length", "data.scalar.style", "data.sequence_start.anchor", "data.sequence_start.tag",
                    "data.mapping_start.anchor", "data.mapping_start.tag", "start_mark.line",
                ],
            ]),
        Library(
            name: "libcrypto", declarations: "CCrypto/include/CCrypto.h",
            headers: ["openssl/evp.h", "openssl/hmac.h", "openssl/x509.h", "openssl/err.h"], members: [:]),
        Library(
            name: "libpq", declarations: "CPostgreSQL/include/CPostgreSQL.h", headers: ["libpq-fe.h"],
            options: ["-I/usr/include/postgresql"],
            members: [
                "PGnotify": ["relname", "be_pid", "extra"],
                "PQconninfoOption": ["keyword", "val"],
            ]),
    ]

    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    @Test(arguments: libraries.filter { $0.isInstalled || ProcessInfo.processInfo.environment["CI"] != nil })
    func `What is declared of a library is what its headers say`(library: Library) throws {
        let own = "#include \"\(ExampleSection.root)/Sources/\(library.declarations)\"\n"
        let real = library.headers.map { "#include <\($0)>\n" }.joined()
        let text = try String(contentsOfFile: "\(ExampleSection.root)/Sources/\(library.declarations)", encoding: .utf8)
        let constants = text.matches(of: #/\b([A-Z][A-Z0-9_a-z]+) = ('.'|[0-9]+)/#).map { ($0.output.1, $0.output.2) }
        // Pointers to the library's functions have the declared types, and its constants the declared values.
        let functions =
            real + "#define HOLDFAST_REAL_TYPES\n" + own
            + "#define CHECK(result, name, parameters, arguments) result(*const check_##name) parameters = name;\n"
            + "HOLDFAST_FUNCTIONS(CHECK)\n"
            + constants.map { "_Static_assert((int)\($0) == \($1), \"\($0)\");\n" }.joined()
        try compile(functions, ["-fsyntax-only", "-Wno-deprecated-declarations"] + library.options)
        // Members are where the library has them, and no structure is larger than what is reserved for it.
        let ours = try layout(own, library)
        let theirs = try layout(real, library)
        #expect(ours.offsets == theirs.offsets)
        for (size, needed) in zip(ours.sizes, theirs.sizes) { #expect(size >= needed) }
    }

    private func layout(_ includes: String, _ library: Library) throws -> (offsets: [String], sizes: [Int]) {
        let structures = library.members.sorted { $0.key < $1.key }
        var program = "#include <stddef.h>\n#include <stdio.h>\n\(includes)int main(void) {\n"
        for (structure, members) in structures {
            program += "printf(\"size %zu\\n\", sizeof(\(structure)));\n"
            for member in members {
                program += "printf(\"\(member) %zu\\n\", offsetof(\(structure), \(member)));\n"
            }
        }
        let output = directory.file("layout")
        // Only types are used: declared functions need no library.
        try compile(program + "}\n", ["-o", output] + library.options)
        let lines = try runAt(output, []).split(separator: "\n").map(String.init)
        return (
            lines.filter { !$0.hasPrefix("size ") },
            lines.compactMap { $0.hasPrefix("size ") ? Int($0.dropFirst(5)) : nil }
        )
    }

    private func compile(_ program: String, _ options: [String]) throws {
        let compiler = try #require(Executable.find("clang"), "clang comes with Swift")
        let source = try directory.write(program, to: "check.c")
        let child = try ChildProcess(compiler, ["-std=c11", "-Werror"] + options + [source])
        #expect(child.wait() == .exit(0), "\(child.errors.text)")
    }

    // MARK: Without them

    @Test func `The program links none of them`() throws {
        let needed = try runAt(try #require(Executable.find("ldd")), [Executable.holdfast])
        for name in ["libpq", "libcrypto", "libyaml", "libz.", "libcurl"] {
            #expect(!needed.contains(name), "\(name): \(needed)")
        }
    }

    /// A system without the libraries, as far as the program can tell.
    private func environmentWithoutThem() throws -> [String: String] {
        let source = try directory.write(
            """
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <string.h>
            void *dlopen(const char *name, int flags) {
                const char *missing[] = {"libz.so", "libyaml", "libcrypto", "libpq", "libcurl"};
                for (int i = 0; name && i < 5; i++) if (strncmp(name, missing[i], strlen(missing[i])) == 0) return NULL;
                return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(name, flags);
            }
            """, to: "missing.c")
        let library = directory.file("libmissing.so")
        let compiler = try #require(Executable.find("clang"), "clang comes with Swift")
        let child = try ChildProcess(compiler, ["-shared", "-fPIC", source, "-o", library, "-ldl"])
        try #require(child.wait() == .exit(0), "\(child.errors.text)")
        return ["LD_PRELOAD": library]
    }

    @Test func `What needs a missing library stops with the package's name`() throws {
        let environment = try environmentWithoutThem()
        let tokens = try directory.write("read reader 0123456789abcdef0123\n", to: "tokens")
        let secret = try directory.write("0123456789abcdef0123\n", to: "upstream-token")
        let yaml = try directory.write("experiments: {}\n", to: "shop.yaml")
        let database = directory.file("holdfast.db")
        for (arguments, package) in [
            (["serve", "--database", "postgresql://127.0.0.1/none"], "needs libpq: apt-get install libpq5"),
            (["export", "--database", "postgresql://127.0.0.1/none"], "needs libpq: apt-get install libpq5"),
            (
                ["serve", "--database", database, "--tokens-file", tokens],
                "--tokens-file needs libcrypto: apt-get install libssl3"
            ),
            (["serve", "--database", database, "--mcp"], "--mcp needs libcrypto: apt-get install libssl3"),
            (
                ["serve", "--database", database, "--traces-endpoint", "http://127.0.0.1:9"],
                "--traces-endpoint needs libcurl: apt-get install libcurl4"
            ),
            (
                ["serve", "--database", database, "--upstream", "http://127.0.0.1:9", "--upstream-token-file", secret],
                "--upstream needs libcurl: apt-get install libcurl4"
            ),
            (["lint", "--file", yaml], "YAML needs libyaml: apt-get install libyaml-0-2"),
        ] {
            let child = try ChildProcess(Executable.holdfast, arguments, environment: environment)
            #expect(child.wait() != .exit(0))
            #expect(child.errors.text.contains(package), "\(arguments): \(child.errors.text)")
        }
    }

    @Test func `Everything else works without them, and nothing is compressed`() throws {
        let server = try ServerProcess(database: directory.file("holdfast.db"), environment: environmentWithoutThem())
        #expect(try server.request("PUT", "/v1/experiments/checkout", #"{"variations":["a","b"]}"#).status == 201)
        let assigned = try server.request("POST", "/v1/assign", #"{"user_id":"ann","experiment":"checkout"}"#)
        #expect(assigned["source"] == "bucketed")
        #expect(try server.request("GET", "/v1/profiles/ann").status == 200)
        let page = try server.request("GET", "/console/app.js", fields: ["Accept-Encoding: gzip"])
        #expect(page.status == 200 && page.field("content-encoding") == nil)
        let list = try server.request("GET", "/openapi.json", fields: ["Accept-Encoding: gzip"])
        #expect(list.status == 200 && list.field("content-encoding") == nil)
    }
}
