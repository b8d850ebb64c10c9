public import Bucketing
public import JSON
public import Storage

/// What an SDK key stands for: the datafile in force, compiled, and the variations forced on users.
public final class Project: Sendable {
    public let sdkKey: String
    /// The stored version of the datafile; counts the datafiles of all projects.
    public let version: Int64
    /// The version of the newest datafile of any project that was known when this was made. Assignments that are
    /// decided with this project are stored only while it is still the newest.
    let catalogVersion: Int64
    /// Whether the active datafile cannot be used by this process, so that this is a former one. It serves those who
    /// have an assignment, and enrolls nobody.
    let isSuperseded: Bool
    public let datafile: Datafile
    /// The datafile as it was brought.
    public let content: [UInt8]
    /// Equal for equal content, in every process.
    public let contentHash: UInt64
    /// By user, then by experiment id: the id of the variation that is forced.
    let forcedVariations: [Identifier: [Identifier: Identifier]]
    /// The attributes and segments that are defined, for all projects.
    public let schema: AttributeSchema
    /// The names of the stored attributes that the audiences ask for.
    let askedAttributes: [String]

    /// - Throws: `HoldfastError` when the datafile is not usable, naming every member that is wrong.
    public convenience init(_ stored: StoredDatafile) throws(HoldfastError) {
        self.init(stored, try Self.compile(stored.content))
    }

    /// A stored datafile by itself, without what the catalog knows.
    ///
    /// - Parameter datafile: the compiled content.
    public init(_ stored: StoredDatafile, _ datafile: Datafile) {
        sdkKey = stored.sdkKey
        version = stored.version
        catalogVersion = stored.version
        isSuperseded = false
        content = stored.content
        contentHash = Self.hash(stored.content)
        self.datafile = datafile
        forcedVariations = [:]
        schema = .empty
        askedAttributes = []
    }

    /// The same datafile in a catalog that has changed.
    public init(
        _ former: Project, forced: [ForcedVariation], schema: AttributeSchema, catalogVersion: Int64, isSuperseded: Bool
    ) {
        sdkKey = former.sdkKey
        version = former.version
        self.catalogVersion = catalogVersion
        self.isSuperseded = isSuperseded
        content = former.content
        contentHash = former.contentHash
        datafile = former.datafile
        forcedVariations = Self.resolve(forced, former.datafile)
        self.schema = schema
        askedAttributes = schema.attributes(for: former.datafile.mentions)
    }

    /// FNV-1a.
    private static func hash(_ content: [UInt8]) -> UInt64 {
        content.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }

    private static let parser = JSONParser(maximumDepth: 128)

    /// - Throws: 400, with all that is wrong as `errors`.
    public static func compile(_ content: [UInt8]) throws(HoldfastError) -> Datafile {
        let value: JSONValue
        do throws(JSONError) {
            value = try parser.parse(content)
        } catch {
            throw HoldfastError(error, in: "the datafile")
        }
        return try compile(value)
    }

    /// A datafile that is to be put in force. Those that are in force are not held to what came later.
    ///
    /// - Throws: 400 also when an experiment or a variation has an id that a profile could not hold.
    public static func accept(_ content: [UInt8]) throws(HoldfastError) -> Datafile {
        let datafile = try compile(content)
        // Assignments to delivery rules are not stored, and the rules' ids are of other forms.
        for experiment in datafile.experimentsBesideRules {
            do throws(HoldfastError) {
                _ = try ProfileInput.checkExperimentID(experiment.id.string, at: nil)
            } catch {
                throw HoldfastError(
                    .invalid, "\(error.detail), in the experiment '\(experiment.key)'")
            }
            for variation in experiment.variations where !ProfileInput.isVariationID(variation.id.string.utf8) {
                throw HoldfastError(
                    .invalid,
                    "a variation id must be 1 to 255 bytes long; got \(variation.id.string.utf8.count), in the variation "
                        + "'\(variation.key)' of the experiment '\(experiment.key)'")
            }
        }
        return datafile
    }

    public static func compile(_ value: JSONValue) throws(HoldfastError) -> Datafile {
        do throws(DatafileError) {
            return try Datafile(value)
        } catch {
            let first = error.problems.first
            var refusal = HoldfastError(
                .invalid, "the datafile is not usable: \(first?.description ?? "it is empty")", at: first?.pointer)
            refusal.faults = error.problems.map { JSONFault(pointer: $0.pointer, reason: $0.reason) }
            throw refusal
        }
    }

    /// Keys that the datafile does not know are let be, as the SDKs do: they may come with a later one.
    private static func resolve(
        _ forced: [ForcedVariation], _ datafile: Datafile
    ) -> [Identifier: [Identifier: Identifier]] {
        var result: [Identifier: [Identifier: Identifier]] = [:]
        for entry in forced {
            guard let experiment = datafile.experiment(key: entry.experimentKey),
                let variation = experiment.variation(key: entry.variationKey)
            else { continue }
            result[entry.userID, default: [:]][experiment.id] = variation.id
        }
        return result
    }
}

/// The name of a project.
public enum SDKKey {
    /// 1 to 255 letters, digits and `+ / = _ . : -`.
    public static func check(_ text: String) throws(HoldfastError) -> String {
        let isKey = text.utf8.allSatisfy { byte in
            byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26 || "+/=_.:-".utf8.contains(byte)
        }
        guard isKey, (1...255).contains(text.utf8.count) else {
            throw HoldfastError(
                .invalid, "an SDK key must be 1 to 255 ASCII letters, digits and `+/=_.:-`; got '\(text)'")
        }
        return text
    }
}

extension Datafile {
    /// The experiments without the delivery rules of flags, as the Agent counts them, too.
    public var experimentsBesideRules: [Experiment] {
        let rules = Set(rollouts.flatMap(\.rules).map(\.id))
        return experiments.filter { !rules.contains($0.id) }
    }

    /// The experiment that a caller names: by its key, or else by its id.
    public func experiment(keyOrID name: Identifier) -> Experiment? {
        experiment(key: name) ?? experiment(id: name)
    }

    public func agentExperiment(key: Identifier) -> Experiment? {
        guard let experiment = experiment(key: key) else { return nil }
        let isDeliveryRule = rollouts.contains { $0.rules.contains { $0.id == experiment.id } }
        return isDeliveryRule ? nil : experiment
    }
}
