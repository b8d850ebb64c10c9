import Testing

@testable import HoldfastAPI
@testable import HoldfastCore

@Suite struct TokenTests {
    @Test func `A token file has a token a line, beside comments and empty lines`() throws {
        let tokens = try Token.parse("# who\n\nread dashboard 0123456789abcdef\n\tadmin on-call\tfedcba9876543210 \n")
        #expect(tokens.map(\.name) == ["dashboard", "on-call"])
        #expect(tokens.map(\.scope) == [.read, .admin])
        #expect(tokens[0].hasSecret("0123456789abcdef".utf8))
        #expect(!tokens[0].hasSecret("0123456789abcdeF".utf8))
        #expect(!tokens[0].hasSecret("0123456789abcde".utf8))
        #expect(!tokens[0].hasSecret("".utf8))
    }

    @Test func `Lines may end as they do on Windows`() throws {
        let tokens = try Token.parse("read one 0123456789abcdef\r\nwrite two fedcba9876543210\r\n")
        #expect(tokens.map(\.name) == ["one", "two"])
        #expect(tokens[0].hasSecret("0123456789abcdef".utf8))
    }

    @Test(arguments: [
        ("read one", 1), ("read one 0123456789abcdef extra", 1), ("root one 0123456789abcdef", 1),
        ("# a\nread one short", 2), ("read one 0123456789abcdef\nread one 1123456789abcdef", 2),
        ("read one 0123456789abcdef\nadmin two 0123456789abcdef", 2), ("read 0123456789abcdef one", 1),
        ("read 0123456789abcdef abcdef0123456789\nread 0123456789abcdef bcdef0123456789a", 2),
        ("read anonymous 0123456789abcdef", 1),
    ])
    func `A wrong line is named and its secret is not quoted`(text: String, line: Int) throws {
        let error = try #require(throws: TokenFileError.self) { try Token.parse(text) }
        #expect(error.line == line)
        #expect(!error.description.contains("123456789abcdef"))
        #expect(!error.description.contains("short'"))
    }
}
