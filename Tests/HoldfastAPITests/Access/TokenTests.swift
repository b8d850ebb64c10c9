import Chronology
import Storage
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

    @Test func `A name may have two secrets, each with a date from which on it is refused`() throws {
        let tokens = try Token.parse(
            "write app 0123456789abcdef expires=2026-12-31\n"
                + "write app fedcba9876543210 expires=2027-01-02T03:04:05+01:00\n")
        #expect(tokens.map(\.name) == ["app", "app"])
        #expect(tokens.map(\.expiresAt?.rfc3339) == ["2026-12-31T00:00:00.000Z", "2027-01-02T02:04:05.000Z"])
        let expired = try Token.parse("write app 0123456789abcdef expires=2020-01-01")
        #expect(expired[0].hasExpired)
        #expect(try !Token.parse("write app 0123456789abcdef expires=9999-12-31")[0].hasExpired)
    }

    @Test(arguments: [
        ("/api/eval/wrongsecretwrongsecret", "/api/eval/(hidden)"),
        ("/api/eval/wrong%2Fsecret/more?x=1&token=abc", "/api/eval/(hidden)?x=1&token=(hidden)"),
        ("/sub/wrongsecretwrongsecret?a=b", "/sub/(hidden)?a=b"), ("/sub/", "/sub/"), ("/subscribe/x", "/subscribe/x"),
        ("/sub/(hidden)", "/sub/(hidden)"), ("/v1/flags/api", "/v1/flags/api"),
    ])
    func `The log hides the client key of a path, also one that is unknown`(target: String, logged: String) {
        #expect(AccessControl().loggable(target) == logged)
    }

    @Test(arguments: [
        ("read one", 1), ("read one 0123456789abcdef extra", 1), ("root one 0123456789abcdef", 1),
        ("# a\nread one short", 2), ("read one 0123456789abcdef\nadmin one 1123456789abcdef", 2),
        ("read one 0123456789abcdef\nread one 1123456789abcdef\nread one 2123456789abcdef", 3),
        ("read one 0123456789abcdef expires=", 1), ("read one 0123456789abcdef expires=2026-02-30", 1),
        ("read one 0123456789abcdef expires=2026-01-01T00:00:00", 1), ("read one 0123456789abcdef ends=2026-01-01", 1),
        ("read one 0123456789abcdef expires=2026-01-01 extra", 1),
        ("read one 0123456789abcdef\nadmin two 0123456789abcdef", 2), ("read 0123456789abcdef one", 1),
        ("read 0123456789abcdef abcdef0123456789\nadmin 0123456789abcdef bcdef0123456789a", 2),
        ("read anonymous 0123456789abcdef", 1),
    ])
    func `A wrong line is named and its secret is not quoted`(text: String, line: Int) throws {
        let error = try #require(throws: TokenFileError.self) { try Token.parse(text) }
        #expect(error.line == line)
        #expect(!error.description.contains("123456789abcdef"))
        #expect(!error.description.contains("short'"))
    }
}
