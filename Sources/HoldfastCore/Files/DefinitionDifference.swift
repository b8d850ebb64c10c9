public import Bucketing
import Definitions
public import JSON
import Storage

/// A difference between two states of an element, or of the settings of a project. Plans (the responses of previews)
/// and the audit log show it.
public struct DefinitionDifference: Sendable {
    /// `nil` for the settings of the project.
    public let kind: DefinitionSet.Kind?
    /// The key of the element, or the SDK key of the project.
    public let key: Identifier
    /// `nil` if the element is new.
    public let before: JSONObject?
    /// `nil` if the element is removed.
    public let after: JSONObject?

    /// The kind of the element in texts, such as `experiment`, or `project` for the settings.
    var noun: String { kind?.noun ?? DefinitionSet.projectMember }

    /// A member that differs.
    private struct MemberDifference {
        let name: String
        /// `nil` if the member is absent.
        let before: JSONValue?
        /// `nil` if the member is absent.
        let after: JSONValue?
    }

    /// The members that differ, without the allocation, which follows from other members or from earlier allocations.
    /// URLs of webhooks are hidden.
    private var members: [MemberDifference] {
        func shown(_ object: JSONObject?) -> JSONObject {
            var object = object ?? JSONObject()
            if kind == .webhooks { object.hideURL() }
            return object
        }
        let before = shown(before)
        let after = shown(after)
        let names = after.map(\.key) + before.map(\.key).filter { after[$0] == nil }
        let differing = names.filter { name in
            name != DefinitionSet.allocation && !DefinitionSet.areSame(before[name], after[name])
        }
        return differing.map { MemberDifference(name: $0, before: before[$0], after: after[$0]) }
    }

    /// Whether any members differ.
    var isDifference: Bool { !members.isEmpty }

    /// The members that differ, with both values; empty if the element is new or removed.
    public var changedMembers: JSONValue {
        guard before != nil, after != nil else { return [] }
        return .array(
            members.map { ["member": .string($0.name), "before": $0.before ?? .null, "after": $0.after ?? .null] })
    }

    /// The difference in a plan.
    public var json: JSONValue {
        ["kind": .string(noun), "key": JSONValue(key), "action": .string(action), "members": changedMembers]
    }

    private var action: String {
        if before == nil { return "create" }
        return after == nil ? "remove" : "change"
    }
}

extension JSONObject {
    /// Replaces the URL of a webhook, which may be a secret, by its origin and a short hash:
    /// `https://example.com/…123456`. The hash shows whether two URLs differ.
    fileprivate mutating func hideURL() {
        guard let url = self["url"]?.string else { return }
        let origin = Webhook.Definition.origin(of: url)
        guard url != origin else { return }
        let hashLength = 6
        let hash = DerivedID.of(url).suffix(hashLength)
        self["url"] = .string("\(origin)/…\(hash)")
    }
}

extension DefinitionSet {
    /// Returns a document of definitions without the URLs of webhooks, for readers who may not see them.
    public static func hidingURLs(_ document: JSONValue) -> JSONValue {
        guard var object = document.object, let webhooks = object[Kind.webhooks.rawValue]?.array else {
            return document
        }
        object[Kind.webhooks.rawValue] = .array(
            webhooks.map { element in
                guard var webhook = element.object else { return element }
                webhook.hideURL()
                return .object(webhook)
            })
        return .object(object)
    }

    /// Returns the elements that differ from those of another set. Groups are left out, because they follow from their
    /// experiments.
    func differences(from former: DefinitionSet) -> [DefinitionDifference] {
        Kind.allCases.filter { $0 != .groups }.flatMap { kind in
            var before = former.objects(kind)
            var after = objects(kind)
            if kind == .experiments { matchRenamed(&before, &after, former) }
            let keys = self[kind].map(\.key) + former[kind].map(\.key).filter { after[$0] == nil }
            return keys.filter { Self.differ(before[$0], after[$0]) }.map { key in
                DefinitionDifference(kind: kind, key: key, before: before[key], after: after[key])
            }
        }
    }

    /// Matches the experiments that were renamed. An experiment was renamed if it has a new key, and the id of an
    /// experiment whose key is gone. It then counts as a change of the element with the new key.
    private func matchRenamed(
        _ before: inout [Identifier: JSONObject], _ after: inout [Identifier: JSONObject], _ former: DefinitionSet
    ) {
        let gone = former[.experiments].filter { after[$0.key] == nil }
        let goneByID = Dictionary(gone.map { ($0.object.identifier("id"), $0) }, uniquingKeysWith: { $1 })
        for element in self[.experiments] where before[element.key] == nil {
            guard let id = element.object.identifier("id"), let renamed = goneByID[id] else { continue }
            before[element.key] = renamed.object
            before[renamed.key] = nil
            after[renamed.key] = nil
        }
    }

    /// Whether two states of an element differ in anything but the allocation.
    private static func differ(_ before: JSONObject?, _ after: JSONObject?) -> Bool {
        guard before != after else { return false }
        guard var before, var after else { return true }
        before[allocation] = nil
        after[allocation] = nil
        return !DefinitionChanges.areSame(.object(before), .object(after))
    }

    /// Whether two members are equivalent, or both absent.
    fileprivate static func areSame(_ left: JSONValue?, _ right: JSONValue?) -> Bool {
        guard let left, let right else { return (left == nil) == (right == nil) }
        return DefinitionChanges.areSame(left, right)
    }
}
