/// Who may move whom:
///
/// - **Only an admin makes an override**: by `PUT …/experiments/{experiment}`, or by importing a profile that has one.
/// - **What is taken over from another id is an assignment**, of the source ``Assignment/Source/merged``, never an
///   override: neither at a login, nor in a merge, nor where `anonymous_id` stands beside the user's id. Of an assignment
///   that an override covers, the underlying one is taken over. Variations that are forced for a test are not taken over
///   either. When the id is merged, its overrides and forced variations end.
/// - **A caller that may not write profiles names only ids that nobody can guess**, because whoever names an id gets what
///   is taken over from it.
/// - **A login never changes what the account has**: it adds what the account lacks.
public enum TakeoverRules {
    /// Returns what may be taken over of an assignment of another id; `nil` if there is nothing but an override.
    public static func assignment(_ other: Assignment) -> Assignment? { other.withoutOverride }

    /// Whether an id is `anonymous-` and a random UUID (version 4, RFC 9562). Whoever names such an id may act for that
    /// user: its 122 random bits cannot be guessed, and only the device knows them.
    public static func isUnguessable(_ id: String) -> Bool {
        let prefix = "anonymous-"
        guard id.hasPrefix(prefix) else { return false }
        let digits = Array(id.utf8.dropFirst(prefix.utf8.count))
        let pattern = Array("xxxxxxxx-xxxx-4xxx-Vxxx-xxxxxxxxxxxx".utf8)
        guard digits.count == pattern.count else { return false }
        return zip(digits, pattern).allSatisfy { digit, expected in
            let isHexadecimal = (0x30...0x39).contains(digit) || (0x61...0x66).contains(digit | 0x20)
            return switch expected {
            case UInt8(ascii: "x"): isHexadecimal
            case UInt8(ascii: "V"): "89abAB".utf8.contains(digit)
            default: digit == expected
            }
        }
    }
}
