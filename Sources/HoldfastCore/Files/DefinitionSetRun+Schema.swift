import Bucketing
import Definitions
import JSON
import Storage

/// Attributes, segments and webhooks. The definitions of a project do not have them, so the changes are collected in
/// ``schemaChange``, which is stored together with the definitions.
extension DefinitionSetRun {
    /// Adds the attribute of an element to ``schemaChange``, unless it is defined already as the element says.
    mutating func define(attribute element: DefinitionSet.Element) throws(CoreError) {
        let definition = try AttributeDefinition(.object(element.object), name: try Self.name(element))
        try schema.checkRoom(forAttribute: element.key)
        switch AttributeRules.define(definition, replacing: schema.attribute(element.key)) {
        case .created, .changed: schemaChange.attributes.append(definition)
        case .unchanged: break
        case .otherType(let stored): throw CoreError(otherTypeOf: stored)
        }
    }

    /// Adds the segment of an element to ``schemaChange``, unless it is defined already as the element says.
    mutating func define(segment element: DefinitionSet.Element) throws(CoreError) {
        // A segment that is as it was is not checked again.
        let stored = schema.segments[element.key]
        if let stored, let given = element.object["conditions"],
            DefinitionChanges.areSame(given, stored.conditions),
            element.object.allSatisfy({ ["name", "conditions"].contains($0.key) })
        {
            return
        }
        let segment = try Segment(.object(element.object), name: try Self.name(element), schema: schema)
        try schema.checkRoom(forSegment: element.key)
        schemaChange.segments.append(segment)
    }

    /// Returns the name of an attribute or a segment.
    ///
    /// - Throws: 422 for a control character, because the path of a request cannot have one.
    private static func name(_ element: DefinitionSet.Element) throws(CoreError) -> Identifier {
        guard element.key.string.utf8.allSatisfy({ $0 >= 0x20 }) else {
            throw CoreError(.unprocessable, "a name must have no control characters; got one", at: ["name"])
        }
        return element.key
    }

    // MARK: Webhooks

    /// Creates or changes the webhook of an element, unless it is defined already as the element says.
    ///
    /// - Parameter view: the webhooks of the server, and which of them the caller may use.
    mutating func define(webhook element: DefinitionSet.Element, _ view: WebhookView) throws(CoreError) {
        let key = element.key.string
        let sdkKey = definitions.sdkKey
        try WebhookRules.check(key: key)
        let former = view.all.first { $0.key == key }
        if let other = former?.sdkKey, other != sdkKey {
            throw CoreError(
                .conflict, "the webhook '\(key)' must be of this project or of all; it is of the project '\(other)'")
        }
        if let former { try view.rules.check(former) }
        let count = view.all.count + schemaChange.webhooks.count { $0.former == nil }
        guard former != nil || count < Webhook.limit else { throw CoreError(webhooks: count) }
        var body = changes(element.object, .webhooks, element.key)
        // Without the member, a token that is bound to a project would make it a webhook of that project.
        if former == nil, body["sdk_key"] == nil { body["sdk_key"] = .null }
        let definition = try view.rules.definition(.object(body), key: key, replacing: former?.definition)
        // Files that are checked without a server belong to no project yet.
        guard definition.sdkKey.map({ sdkKey.isEmpty || $0 == sdkKey }) ?? true else {
            throw CoreError(
                .unprocessable,
                "`sdk_key` must be that of the project, '\(sdkKey)', or be left out for a webhook of all projects; got "
                    + "'\(definition.sdkKey ?? "")'", at: ["sdk_key"])
        }
        guard definition != former?.definition else { return }
        change(webhook: WebhookChange(key, definition, replacing: former?.definition))
    }

    /// Adds a change to those that will be stored, and makes it in ``webhooks``.
    mutating func change(webhook change: WebhookChange) {
        schemaChange.webhooks.append(change)
        var all = webhooks ?? []
        all.removeAll { $0.key == change.key }
        if let definition = change.definition { all.append(Webhook(key: change.key, definition)) }
        webhooks = all.sorted { $0.key < $1.key }
    }
}
