/// The rules by which a user takes over the assignments of another id: in a merge at a login, or by an `anonymous_id`
/// in a request.
///
/// - **Only an admin makes an override**: by `PUT …/experiments/{experiment}`, or by importing a profile that has one.
/// - **Only assignments are taken over**, with the source ``Assignment/Source/merged``. Overrides and forced variations
///   are not taken over. If an override covers an assignment, the underlying assignment is taken over. When the other
///   id is merged, its overrides and forced variations end.
/// - **A caller that may not write profiles may only name ids that nobody can guess**, because the caller gets the
///   assignments of the id that it names.
/// - **A login never changes assignments of the account**: it only adds assignments in other experiments.
public enum TakeoverRules {
    /// Returns the assignment that may be taken over from an assignment of another id; `nil` for an override without an
    /// underlying assignment.
    public static func assignment(_ other: Assignment) -> Assignment? { other.withoutOverride }

    /// Whether an id consists of `anonymous-` and a random UUID (version 4, RFC 9562 §5.4). A caller who names such an
    /// id may act for the user, because the 122 random bits cannot be guessed and only the user's device knows them.
    public static func isUnguessable(_ id: String) -> Bool {
        let prefix = "anonymous-"
        guard id.hasPrefix(prefix) else { return false }
        let digits = Array(id.utf8.dropFirst(prefix.utf8.count))
        // x: any digit, 4: the version, V: the variant 10 and two random bits. Any other character stands for itself.
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
