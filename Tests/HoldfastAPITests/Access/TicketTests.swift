import Chronology
import Testing

@testable import HoldfastAPI

@Suite struct TicketTests {
    private static func hexadecimal(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// RFC 4231, test cases 1, 2 and 6.
    @Test func `The code is HMAC-SHA-256`() {
        func code(_ key: [UInt8], _ message: String) -> String {
            let token = Token(scope: .read, name: "name", secret: key)
            return Self.hexadecimal(token.authenticationCode(for: Array(message.utf8)))
        }
        #expect(
            code(Array(repeating: 0x0B, count: 20), "Hi There")
                == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
        #expect(
            code(Array("Jefe".utf8), "what do ya want for nothing?")
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        #expect(
            code(Array(repeating: 0xAA, count: 131), "Test Using Larger Than Block-Size Key - Hash Key First")
                == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
    }

    @Test func `A ticket is valid for one to two hours, and only for its token`() throws {
        let tokens = try Token.parse("client a secret-a-0123456789\nclient b secret-b-0123456789\n")
        let start = Instant(milliseconds: 1_795_359_600_000)
        for now in [start, start + .minutes(30), start + .milliseconds(3_599_999)] {
            let ticket = StreamTicket(for: tokens[0], at: now).text
            #expect(ticket == StreamTicket(for: tokens[0], at: start).text)
            #expect(StreamTicket.isValid(ticket, of: tokens[0], at: start + .seconds(7_199)))
            #expect(!StreamTicket.isValid(ticket, of: tokens[0], at: start + .hours(2)))
            #expect(!StreamTicket.isValid(ticket, of: tokens[1], at: now))
            #expect(!StreamTicket.isValid(ticket.replacing("17", with: "18"), of: tokens[0], at: now))
        }
        for text in ["", ".", "9999999999", "9999999999.", "x.y", "9223372036854775808.00"] {
            #expect(!StreamTicket.isValid(text, of: tokens[0], at: start))
        }
    }
}
