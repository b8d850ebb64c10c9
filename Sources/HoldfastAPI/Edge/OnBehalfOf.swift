import HTTPServer
import HoldfastCore

/// The caller for whom an edge forwards a request, as the value of a header field:
///
///     Holdfast-On-Behalf-Of: shop-app; scope=write; projects=shop,blog
///
/// The edge has checked the caller's token, and sends the request with its own token. The scope is never `admin` or
/// `export`. Only the upstream checks tokens of these scopes, so that the token of an edge is not sufficient to
/// administer the server or to read the audit log.
struct OnBehalfOf: Equatable {
    static let fieldName: StaticString = "holdfast-on-behalf-of"
    /// The error for a malformed value.
    static let rule =
        "Holdfast-On-Behalf-Of must be 'NAME; scope=SCOPE', perhaps with '; projects=KEY,KEY', and the scope client, read, write, attributes, definitions or metrics"

    let name: String
    let scope: Token.Scope
    let projects: ProjectAccess

    /// The maximum length of the name in bytes.
    private static let longestName = 255

    init(name: String, scope: Token.Scope, projects: ProjectAccess) {
        self.name = name
        self.scope = scope
        self.projects = projects
    }

    /// Parses the value of the header field; `nil` if it is malformed, or if an edge must not forward the scope.
    init?(_ text: String) {
        let parts = text.split(separator: "; ", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), parts[1].hasPrefix("scope="),
            let name = Array(parts[0].utf8).withUnsafeBytes({ PercentDecoding.decode($0) }),
            (1...Self.longestName).contains(name.utf8.count), name.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }),
            let scope = Token.Scope(name: parts[1].dropFirst("scope=".count)),
            ![.admin, .edge, .export].contains(scope)
        else { return nil }
        var projects = ProjectAccess.all
        if parts.count == 3 {
            let keys = parts[2].dropFirst("projects=".count).split(separator: ",", omittingEmptySubsequences: false)
                .map(String.init)
            guard parts[2].hasPrefix("projects="), keys.allSatisfy({ (try? SDKKey.check($0)) != nil }) else {
                return nil
            }
            projects = ProjectAccess(only: keys)
        }
        self.init(name: name, scope: scope, projects: projects)
    }

    /// The value of the header field.
    var text: String {
        // A name may have any characters except white space, so it is percent-encoded.
        let encodedName = name.utf8.map(Self.encoded).joined()
        let bound = projects.sdkKeys.map { "; projects=\($0.joined(separator: ","))" } ?? ""
        return "\(encodedName); scope=\(scope)\(bound)"
    }

    /// Percent-encodes a byte unless it is a visible ASCII character other than `;` and `%`.
    private static func encoded(_ byte: UInt8) -> String {
        let isPlain = byte > 0x20 && byte < 0x7F && byte != UInt8(ascii: ";") && byte != UInt8(ascii: "%")
        guard !isPlain else { return String(UnicodeScalar(byte)) }
        // Adding 0x100 gives three hexadecimal digits, of which the last two stand for the byte.
        return "%" + String(UInt16(byte) + 0x100, radix: 16).suffix(2)
    }
}
