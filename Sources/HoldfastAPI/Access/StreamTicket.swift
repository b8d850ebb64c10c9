import Chronology
import Storage

/// A credential in a URL, for browsers' `EventSource`, which cannot send `Authorization`. A ticket can only open a
/// stream of changes.
///
/// A ticket is `EXPIRY.CODE`, where the code is an HMAC-SHA-256 of the expiry with the secret of a token as key.
/// Servers store no tickets: every server with the same tokens accepts a ticket, until it expires or the token is
/// removed.
struct StreamTicket {
    /// The expiry in seconds since 1970.
    let expiry: Int64
    /// The code in hexadecimal.
    private let code: String

    /// Tickets change once an hour, so that responses with a ticket keep their entity tag for an hour. Each ticket is
    /// valid for one to two hours.
    private static let period: Int64 = 3_600
    /// The number of bytes of the code in a ticket: half of an HMAC-SHA-256, the least that RFC 2104 §5 recommends.
    private static let codeBytes = 16

    /// Makes a ticket for the bearer of a token.
    init(for token: Token, at now: Instant) {
        let seconds = now.secondsSince1970
        self.init(for: token, expiry: (seconds / Self.period + 2) * Self.period)
    }

    private init(for token: Token, expiry: Int64) {
        self.expiry = expiry
        let code = token.authenticationCode(for: Array("stream of changes until \(expiry)".utf8))
        let digits = Array("0123456789abcdef".utf8)
        let text = code.prefix(Self.codeBytes).flatMap { byte in [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
        self.code = String(decoding: text, as: UTF8.self)
    }

    var text: String { "\(expiry).\(code)" }

    /// Whether a text is a ticket that this token made and that has not expired.
    static func isValid(_ text: String, of token: Token, at now: Instant) -> Bool {
        guard let end = text.firstIndex(of: "."), let expiry = Int64(text[..<end]), expiry > now.secondsSince1970 else {
            return false
        }
        return ConstantTime.areEqual(StreamTicket(for: token, expiry: expiry).text.utf8, text.utf8)
    }
}
