import Bucketing
import HTTPServer

/// An experiment as an admin describes it without a datafile at hand.
///
/// `{"variations":["control","new"],"status":"Running","audience":[…]}`, or with weights
/// `{"variations":[{"key":"control","weight":5000},{"key":"new","weight":1000}]}`. Weights are in hundredths of a
/// percent (of 10,000); what is left over is for nobody. Without weights all is split equally.
struct ExperimentDefinition {
    struct VariationDefinition {
        var key: String
        var id: String?
        var weight: Int?
    }

    var key: String
    var id: String?
    var variations: [VariationDefinition]?
    var status: String?
    /// Conditions as a datafile's audience has them; `null` stands for everybody.
    var audience: JSONValue?

    /// Variations of one experiment.
    static let variationLimit = 1_000
    static let statuses = ["Running", "Paused", "Not started", "Archived"]

    init(_ value: JSONValue, key: String) throws(Problem) {
        guard let object = value.object else {
            throw Problem(.badRequest, "an experiment is an object, not \(value.kind)", at: [])
        }
        for member in object where !["key", "id", "variations", "status", "audience"].contains(member.key) {
            throw Problem(.badRequest, "the member \(member.key) is not known", at: JSONPointer().appending(member.key))
        }
        self.key = key
        if let given = try object.optionalText("key"), !given.utf8.elementsEqual(key.utf8) {
            throw Problem(.badRequest, "key is another than the path names", at: ["key"])
        }
        id = try object.optionalText("id")
        if let id { _ = try ProfileBody.checkExperimentID(id, at: ["id"]) }
        status = try object.optionalText("status")
        if let status, !Self.statuses.contains(status) {
            throw Problem(.badRequest, "status is one of \(Self.statuses.joined(separator: ", "))", at: ["status"])
        }
        audience = object["audience"]
        if let audience, !audience.isNull {
            let faults = AudienceRules.faults(in: audience, at: ["audience"])
            if let problem = Problem(faults: faults, "nothing was stored") { throw problem }
        }
        variations = try object["variations"].map(Self.variations)
    }

    private static func variations(_ value: JSONValue) throws(Problem) -> [VariationDefinition] {
        let place: JSONPointer = ["variations"]
        guard let list = value.array, !list.isEmpty else {
            throw Problem(.badRequest, "variations is an array of at least one", at: place)
        }
        guard list.count <= variationLimit else {
            throw Problem(.badRequest, "variations has \(list.count) elements; the limit is \(variationLimit)", at: place)
        }
        var variations: [VariationDefinition] = []
        for (index, element) in list.enumerated() {
            let variation = try Self.variation(element, at: place.appending(index))
            guard !variations.contains(where: { $0.key.utf8.elementsEqual(variation.key.utf8) }) else {
                throw Problem(.badRequest, "the variation '\(variation.key)' stands twice", at: place.appending(index))
            }
            variations.append(variation)
        }
        let weighted = variations.count { $0.weight != nil }
        guard weighted == 0 || weighted == variations.count else {
            throw Problem(.badRequest, "either every variation has a weight or none has", at: place)
        }
        let sum = variations.reduce(0) { $0 + ($1.weight ?? 0) }
        guard sum <= Bucketer.bucketCount else {
            throw Problem(.badRequest, "the weights add up to \(sum), and there are 10000", at: place)
        }
        return variations
    }

    private static func variation(_ value: JSONValue, at place: JSONPointer) throws(Problem) -> VariationDefinition {
        if let key = value.string {
            return VariationDefinition(key: try checkKey(key, at: place))
        }
        guard let object = value.object else {
            throw Problem(.badRequest, "a variation is a key or an object, not \(value.kind)", at: place)
        }
        for member in object where !["key", "id", "weight"].contains(member.key) {
            throw Problem(.badRequest, "the member \(member.key) is not known", at: place.appending(member.key))
        }
        var variation = VariationDefinition(key: try checkKey(try object.text("key", in: place), at: place.appending("key")))
        variation.id = try object.optionalText("id", in: place)
        if let id = variation.id, !ProfileBody.isVariationID(id.utf8) {
            throw Problem(.badRequest, "id is 1 to 255 bytes long", at: place.appending("id"))
        }
        if let weight = object["weight"], !weight.isNull {
            guard let number = weight.integer, (0...Int64(Bucketer.bucketCount)).contains(number) else {
                throw Problem(.badRequest, "weight is a whole number from 0 to 10000", at: place.appending("weight"))
            }
            variation.weight = Int(number)
        }
        return variation
    }

    /// 1 to 255 bytes.
    static func checkKey(_ key: String, at place: JSONPointer?) throws(Problem) -> String {
        guard (1...255).contains(key.utf8.count), !key.utf8.contains(0) else {
            throw Problem(.badRequest, "a key is 1 to 255 bytes long", at: place)
        }
        return key
    }
}
