import Bucketing
import HTTPServer
import JSON

/// What becomes of a user's attributes, as a client asks for it, checked against the schema as a whole.
struct AttributeBody {
    /// By the number of the attribute.
    private(set) var updates: [UInt32: AttributeUpdate] = [:]
    private var faults: [(pointer: JSONPointer, reason: String)] = []
    private let schema: AttributeSchema

    private init(_ schema: AttributeSchema) {
        self.schema = schema
    }

    /// `{"country":"de","age":30}`
    ///
    /// - Throws: 422 with every member that is wrong as `errors`.
    init(values: JSONValue, schema: AttributeSchema) throws(Problem) {
        self.init(schema)
        set(values, at: [])
        try check()
    }

    /// A line of an import: `{"user_id":"u","attributes":{…},"remove":["a"]}`; the latter two may be absent.
    ///
    /// - Throws: as ``init(values:schema:)``
    init(line: JSONObject, schema: AttributeSchema) throws(Problem) {
        self.init(schema)
        if let values = line["attributes"] { set(values, at: ["attributes"]) }
        if let names = line["remove"] { remove(names, at: ["remove"]) }
        try check()
    }

    /// Removes attributes by their names.
    ///
    /// - Throws: 422 when there is no attribute of a name.
    init(removing names: [String], schema: AttributeSchema) throws(Problem) {
        self.init(schema)
        for name in names {
            guard let definition = schema.attribute(Identifier(name)) else {
                throw Problem(.unprocessableContent, "no attribute has the name '\(name)'")
            }
            updates[definition.number] = .remove
        }
    }

    private mutating func set(_ values: JSONValue, at place: JSONPointer) {
        guard let object = values.object else {
            return refuse(place, "attributes must be an object; got \(values.kind)")
        }
        guard check(count: object.count, at: place) else { return }
        for member in object {
            let pointer = place.appending(member.key)
            guard let definition = definition(member.key, pointer) else { continue }
            if member.value.isNull {
                refuse(pointer, "`\(member.key)` must have a value; got null (DELETE removes an attribute)")
                continue
            }
            do throws(AttributeRefusal) {
                updates[definition.number] = .set(try definition.value(member.value))
            } catch {
                refuse(pointer, error.description)
            }
        }
    }

    private mutating func remove(_ names: JSONValue, at place: JSONPointer) {
        guard let list = names.array else { return refuse(place, "`remove` must be an array; got \(names.kind)") }
        guard check(count: list.count, at: place) else { return }
        for (index, name) in list.enumerated() {
            let pointer = place.appending(index)
            guard let text = name.string else {
                refuse(pointer, "a name must be a string; got \(name.kind)")
                continue
            }
            guard let definition = definition(text, pointer) else { continue }
            if updates.updateValue(.remove, forKey: definition.number) != nil {
                refuse(pointer, "an attribute must be named once; got '\(definition.name)' twice")
            }
        }
    }

    private mutating func check(count: Int, at place: JSONPointer) -> Bool {
        let isWithinLimit = count <= ProfileBody.attributeLimit
        if !isWithinLimit { refuse(place, "attributes must be at most \(ProfileBody.attributeLimit); got \(count)") }
        return isWithinLimit
    }

    private mutating func definition(_ name: String, _ pointer: JSONPointer) -> AttributeDefinition? {
        if let definition = schema.attribute(Identifier(name)) { return definition }
        refuse(pointer, "no attribute has the name '\(name)'")
        return nil
    }

    private mutating func refuse(_ pointer: JSONPointer, _ reason: String) {
        faults.append((pointer, reason))
    }

    private func check() throws(Problem) {
        if let problem = Problem(faults: faults, "nothing was stored") { throw problem }
    }
}

extension Problem {
    /// 422 with everything that is wrong as `errors`; `nil` if there is nothing.
    ///
    /// - Parameter consequence: what came of it.
    init?(faults: [ConditionFault], _ consequence: String) {
        self.init(faults: faults.map { ($0.pointer, $0.reason) }, consequence)
    }

    init?(faults: [(pointer: JSONPointer, reason: String)], _ consequence: String) {
        guard let first = faults.first else { return nil }
        let detail = faults.count == 1 ? first.reason : "\(faults.count) members are wrong"
        self.init(.unprocessableContent, "\(detail); \(consequence)", at: first.pointer)
        members = [
            (
                "errors",
                .array(
                    faults.prefix(100).map { fault in
                        [
                            "pointer": .string(fault.pointer.shortened(to: Self.longestDetail).string),
                            "detail": .string(fault.reason.shortened(to: Self.longestDetail)),
                        ]
                    })
            )
        ]
    }
}
