public import Bucketing
import JSON

extension ProjectDefinitions {
    /// The generated datafile as JSON text. That of an element is made once, however many edits leave the element alone.
    public var content: [UInt8] { parts(replacing: nil)?.parts.joined ?? datafile.encoded() }

    /// Returns the generated datafile in parts, and what differs from a former one.
    ///
    /// - Parameter former: the datafile before an edit; `nil` if it was not stored in parts.
    /// - Returns: `nil` if the datafile cannot be stored in parts: it was not generated, or elements that an upload has
    ///   brought have no id, or that of another.
    package func parts(replacing former: DatafileParts?) -> (parts: DatafileParts, change: DatafileParts.Change)? {
        guard generation != nil, let (base, given) = separated else { return nil }
        let (outside, grouped) = experimentsByGroup { (key: $0.key, body: $0.written.text) }
        let generated =
            [
                DatafileParts.List("experiments", outside),
                DatafileParts.List("featureFlags", flags.map { (key: $0.key, body: $0.written.text) }),
            ] + grouped.map { DatafileParts.List(DatafileParts.list(ofGroup: $0.key), $0.value) }
        return DatafileParts.edited(base: base, (generated + given).filter { !$0.elements.isEmpty }, replacing: former)
    }

    /// The datafile without its elements, and those lists whose elements are in it alone.
    private var separated: (base: [UInt8], lists: [DatafileParts.List])? {
        var base = root
        var lists: [DatafileParts.List] = []
        for name in DatafileParts.lists {
            guard let elements = base[name]?.array, !elements.isEmpty else { continue }
            base[name] = []
            // Their texts are known.
            if ["experiments", "featureFlags"].contains(name) { continue }
            let named = elements.compactMap { element in
                element.object?.identifier("id").map { (key: $0, body: element.encoded()) }
            }
            guard named.count == elements.count else { return nil }
            lists.append(DatafileParts.List(Identifier(name), named))
        }
        if let groups = base["groups"]?.array {
            base["groups"] = .array(
                groups.map { group in
                    guard var object = group.object, object["experiments"] != nil else { return group }
                    object["experiments"] = []
                    return .object(object)
                })
        }
        if var own = base[Annotations.member]?.object {
            for member in DatafileParts.ownLists {
                guard let elements = own[member]?.object, !elements.isEmpty else { continue }
                lists.append(
                    DatafileParts.List(
                        DatafileParts.list(ofOwn: member),
                        elements.map { (key: Identifier($0.key), body: $0.value.encoded()) }))
                own[member] = .object(JSONObject())
            }
            base[Annotations.member] = .object(own)
        }
        return (JSONValue.object(base).encoded(), lists)
    }
}
