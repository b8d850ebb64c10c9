/// Collects members without letting a key occur twice, in time linear to their number.
struct JSONObjectBuilder {
    private var members: [JSONObject.Member] = []
    /// Where each key is; empty while the members are few enough to be walked.
    private var indices: [Identifier: Int] = [:]

    private static let walkable = 16

    var object: JSONObject { JSONObject(uniqueMembers: members) }

    func index(of key: String) -> Int? {
        if members.count > Self.walkable {
            return indices[Identifier(key)]
        }
        return members.firstIndex { $0.key.hasSameBytes(as: key) }
    }

    /// - Parameter former: what ``index(of:)`` says of the key.
    mutating func set(_ key: String, _ value: JSONValue, former: Int?) {
        if let former {
            members[former].value = value
            return
        }
        // Most objects have a few members; growing to them one by one would take as long as to read them.
        if members.isEmpty { members.reserveCapacity(4) }
        members.append(JSONObject.Member(key: key, value: value))
        if members.count == Self.walkable + 1 {
            for (index, member) in members.enumerated() {
                indices[Identifier(member.key)] = index
            }
        } else if members.count > Self.walkable {
            indices[Identifier(key)] = members.count - 1
        }
    }
}
