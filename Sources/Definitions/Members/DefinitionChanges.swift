public import JSON

/// Compares the body of a `PUT` with the response to `GET`, so that a program can send back what it has read. A member
/// with the value that `GET` shows requests no change, and is accepted even if it would be refused as a new value.
public struct DefinitionChanges: Sendable {
    private let shown: JSONObject

    /// - Parameter description: the element as `GET` shows it.
    public init(of description: JSONValue) {
        shown = description.object ?? JSONObject()
    }

    /// Returns the body without the members that have the value that `GET` shows. A value that is not an object is
    /// returned unchanged.
    public func members(of body: JSONValue) -> JSONValue {
        guard let object = body.object else { return body }
        var changes = JSONObject()
        for member in object where !isShown(member.key, member.value) { changes[member.key] = member.value }
        // A change of an archived experiment must say that it stays archived.
        if !changes.isEmpty, let status = object["status"], status.string?.lowercased() == "archived" {
            changes["status"] = status
        }
        return .object(changes)
    }

    /// Refuses a body that was read from another project.
    ///
    /// - Throws: 400 if `sdk_key` is not the one of this project.
    public func checkProject(of body: JSONValue) throws(CoreError) {
        guard let given = body.object?["sdk_key"], let own = shown["sdk_key"], given != own else { return }
        throw CoreError(
            .invalid,
            "`sdk_key` must be that of the project that the request names, '\(own.string ?? "")'; got "
                + (given.string.map { "'\($0)'" } ?? given.kind), at: ["sdk_key"])
    }

    private func isShown(_ key: String, _ value: JSONValue) -> Bool {
        shown[key].map { Self.areSame($0, value, orderCounts: false) } ?? false
    }

    /// Whether two values are equivalent. Numbers are compared by value. The order of members counts for `weights`
    /// only, where the first variation is the baseline.
    public static func areSame(_ left: JSONValue, _ right: JSONValue, orderCounts: Bool = false) -> Bool {
        switch (left, right) {
        case (.integer(let left), .integer(let right)): return left == right
        case (.array(let left), .array(let right)):
            return left.count == right.count && zip(left, right).allSatisfy { areSame($0, $1, orderCounts: false) }
        case (.object(let left), .object(let right)):
            guard left.count == right.count else { return false }
            if orderCounts, zip(left, right).contains(where: { !$0.key.utf8.elementsEqual($1.key.utf8) }) {
                return false
            }
            return left.allSatisfy { member in
                right[member.key].map { areSame(member.value, $0, orderCounts: member.key == "weights") } ?? false
            }
        default:
            if let left = left.double, let right = right.double { return left == right }
            return left == right
        }
    }
}
