public import JSON

/// All members of one kind of element, in the order in which they are shown. Code that needs all members uses this
/// table: to read the body of a `PUT`, to show the element, to write it to a file, and to store it.
public struct MemberTable<Element: Sendable>: Sendable {
    /// The name of the element in errors, such as "a holdout".
    let noun: String
    /// A new element, whose members have their default values.
    public let blank: Element
    public let members: [Member<Element>]
    /// The names of further members that `GET` shows. Requests may repeat them, and they are ignored.
    let shown: [String]

    // Computed once, because applying a file needs them for each element.
    /// The names of ``members``.
    public let names: [String]
    /// The names that a body may have: `key` and ``names``.
    public let givenNames: [String]
    /// The names of the members that the owner of an element determines; see ``Member/Traits``.
    public let ownedNames: [String]
    /// The names of the members that `?from=` copies.
    public let copied: [String]
    /// The values of members that a file leaves out. A member without a default keeps its former value.
    public let defaults: [String: JSONValue]

    public init(_ noun: String, blank: Element, showing shown: [String] = [], _ members: [Member<Element>]) {
        self.noun = noun
        self.blank = blank
        self.members = members
        self.shown = shown
        names = members.map(\.name)
        givenNames = ["key"] + names
        ownedNames = members.filter(\.traits.isOwned).map(\.name)
        copied = members.filter(\.traits.isCopied).map(\.name)
        let defaults = members.compactMap { member in member.traits.fileDefault.map { (member.name, $0) } }
        self.defaults = Dictionary(defaults, uniquingKeysWith: { $1 })
    }

    /// Returns the members with some names, for the table of another element that has the same members.
    public subscript(names: String...) -> [Member<Element>] {
        names.compactMap { name in members.first { $0.name == name } }
    }

    /// Returns a table with some of the members.
    func only(_ names: [String], of noun: String, blank: Element) -> Self {
        Self(noun, blank: blank, showing: shown, members.filter { names.contains($0.name) })
    }

    /// The OpenAPI schema of the body of a `PUT`. Members that only `GET` shows may be in the body, too.
    var schema: JSONValue {
        var properties = JSONObject()
        for member in members { properties[member.name] = member.schema }
        for name in shown {
            properties[name] = ["description": "Ignored, so that what `GET` returns can be sent back."]
        }
        return ["type": "object", "additionalProperties": false, "properties": .object(properties)]
    }

    // MARK: Requests

    /// Reads the body of a `PUT`.
    ///
    /// - Throws: 400 if the value is not an object; 422 with every wrong member.
    public func read(_ body: JSONValue, key: String) throws(CoreError) -> Given<Element> {
        guard body.object != nil else {
            throw CoreError(.invalid, "\(noun) must be an object; got \(body.kind)", at: [])
        }
        var faults = FaultCollector()
        let object = body.object ?? JSONObject()
        checkNames(of: object, &faults)
        if let given = faults.collect(try object.optionalText("key")), !given.utf8.elementsEqual(key.utf8) {
            faults.add("`key` must be the key in the path, '\(key)'; got '\(given)'", at: ["key"])
        }
        let given = read(object, at: [], &faults)
        try faults.check()
        return given
    }

    /// Adds a fault for each member of a body that is unknown.
    func checkNames(of body: JSONObject, _ faults: inout FaultCollector) {
        _ = faults.object(.object(body), noun, knowing: givenNames, ignoring: shown, at: [])
    }

    /// Reads the members of an object, and ignores unknown ones.
    ///
    /// - Parameter kept: the names of required members that may be absent, because the element has a value already.
    public func read(
        _ object: JSONObject, at place: JSONPointer, keeping kept: Set<String> = [], _ faults: inout FaultCollector
    ) -> Given<Element> {
        var given = Given(draft: blank)
        for member in members {
            if let rule = member.traits.requirement, object[member.name]?.isNull ?? !kept.contains(member.name) {
                faults.add("`\(member.name)` is required\(rule)", at: place.appending(member.name))
            } else {
                given.names.formUnion(member.read(object, place, &given.draft, &faults))
            }
        }
        return given
    }

    /// Returns a value as an object, and adds a fault for each unknown member.
    public func object(_ value: JSONValue, at place: JSONPointer, _ faults: inout FaultCollector) -> JSONObject? {
        faults.object(value, noun, knowing: names, ignoring: shown, at: place)
    }

    /// Sets the values of the members that a body has. The others keep their values.
    public func apply(_ given: Given<Element>, to element: inout Element) {
        for member in members where given.names.contains(member.name) { member.copy(given, &element) }
    }

    // MARK: What is shown and stored

    private func isSet(_ member: Member<Element>, of element: Element) -> Bool {
        !member.traits.isShownIfSet || !member.areSame(element, blank)
    }

    /// Adds the members to an object, as `GET` shows them.
    public func show(_ element: Element, in object: inout JSONObject) {
        for member in members where isSet(member, of: element) {
            if let value = member.write(element) { object[member.name] = value }
        }
    }

    /// Adds the members to an object of a file.
    ///
    /// - Parameters:
    ///   - isOwned: whether to leave out the ``ownedNames``, because the object of the owner has them.
    ///   - excluded: the names of further members to leave out.
    public func writeFile(
        _ element: Element, to object: inout JSONObject, isOwned: Bool = false, except excluded: Set<String> = []
    ) {
        for member in members
        where !(isOwned && member.traits.isOwned) && !excluded.contains(member.name) && isSet(member, of: element) {
            if let value = member.file(element) { object[member.name] = value }
        }
    }

    /// Adds the members that a body has to an object of a file.
    public func writeFile(_ given: Given<Element>, to object: inout JSONObject) {
        writeFile(given.draft, to: &object, except: Set(names).subtracting(given.names))
    }

    /// Whether any member has to be stored in the object `holdfast` of the datafile.
    public func hasStored(_ element: Element) -> Bool {
        members.contains { $0.traits.isStored && !$0.areSame(element, blank) }
    }

    /// Sets the stored members in the object `holdfast`, and removes those that have their default value.
    public func store(_ element: Element, in object: inout JSONObject) {
        for member in members where member.traits.isStored {
            object[member.name] = member.areSame(element, blank) ? nil : member.write(element)
        }
    }

    /// Reads the stored members from the object `holdfast`.
    public func readStored(_ object: JSONObject, into element: inout Element) {
        for member in members where member.traits.isStored {
            if let value = object[member.name] { member.readStored(value, &element) }
        }
    }
}
