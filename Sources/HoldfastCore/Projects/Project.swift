public import Bucketing
public import Chronology
public import Definitions
import JSON
public import Storage

/// The project of an SDK key: its active datafile, compiled, and the variations that are forced on users. Immutable;
/// the ``ProjectCatalog`` creates a new one after each change.
public final class Project: Sendable {
    public let sdkKey: String
    /// The version of the stored datafile. One counter numbers the datafiles of all projects.
    public let version: Int64
    /// The version of the newest datafile of all projects when this value was created. An assignment that was decided
    /// with it is stored only while that datafile is still the newest.
    let catalogVersion: Int64
    /// Whether this is an earlier datafile, because this process cannot use the active one. Users with an assignment
    /// keep getting their variation. Nobody is enrolled, because an assignment is stored only if it was decided with
    /// the newest datafile.
    let isSuperseded: Bool
    /// The definitions of the project, and the compiled datafile that makes the decisions.
    public let compiled: CompiledDefinitions
    /// The datafile in parts; `nil` if it is stored whole.
    let parts: DatafileParts?
    private let texts: DatafileTexts
    /// The ids under which SDKs get the winners of concluded experiments; see ``PublishedDatafile``.
    private let deliveries: Set<Identifier>
    /// Whether this process has stored the datafile, and with it the allocations and statuses of all its experiments.
    let isStoredHere: Bool
    /// When the datafile was activated, by the clock of the host that stored it.
    public let storedAt: Instant
    /// A hash of the content, the same in all processes. A datafile that is stored in parts has another hash than the
    /// same datafile stored whole.
    public let contentHash: UInt64
    /// The ids of the forced variations, by user id and experiment id.
    let forcedVariations: [Identifier: [Identifier: Identifier]]
    /// The attributes and segments that are defined, for all projects.
    public let schema: AttributeSchema
    /// The names of the stored attributes that the audiences of this project use.
    let askedAttributes: [String]

    /// Compiles a stored datafile.
    ///
    /// - Parameters:
    ///   - stored: a datafile that is stored whole or in parts.
    ///   - former: a project whose datafile is probably similar. Elements that both have are not read again.
    /// - Throws: 400 if the datafile is not usable, with every wrong member as `errors`.
    public convenience init(_ stored: StoredDatafile, similarTo former: Project? = nil) throws(CoreError) {
        if let parts = stored.body.parts(after: nil) {
            let formerInParts = former.flatMap { former in former.parts.map { (former.compiled, $0) } }
            self.init(stored, try CompiledDefinitions(parts, similarTo: formerInParts))
            return
        }
        let compiled = try CompiledDefinitions(stored.content, similarTo: former?.compiled)
        guard let served = try compiled.servingAll() else {
            self.init(stored, compiled)
            return
        }
        // An earlier release created experiments without flags that serve them. This project has the flags, and the
        // next edit stores them. A datafile in parts was stored by an edit, so it has them.
        var changed = stored
        changed.body = .whole(served.definitions.content)
        self.init(changed, served)
    }

    /// Creates a project without the forced variations and the schema, which the catalog adds.
    ///
    /// - Parameters:
    ///   - compiled: the definitions and the compiled datafile of `stored`.
    ///   - isStoredHere: whether this process has stored the datafile.
    init(_ stored: StoredDatafile, _ compiled: CompiledDefinitions, isStoredHere: Bool = false) {
        self.isStoredHere = isStoredHere
        sdkKey = stored.sdkKey
        version = stored.version
        catalogVersion = stored.version
        isSuperseded = false
        parts = stored.body.parts(after: nil)
        texts = DatafileTexts(stored.body, compiled.definitions)
        deliveries = PublishedDatafile.deliveries(of: compiled.datafile)
        storedAt = stored.storedAt
        contentHash = parts?.hash ?? stored.content.contentHash
        self.compiled = compiled
        forcedVariations = [:]
        schema = .empty
        askedAttributes = []
    }

    /// Creates a project with the same datafile for a catalog that has changed.
    public init(
        _ former: Project, forced: [ForcedVariation], schema: AttributeSchema, catalogVersion: Int64, isSuperseded: Bool
    ) {
        sdkKey = former.sdkKey
        version = former.version
        isStoredHere = former.isStoredHere
        self.catalogVersion = catalogVersion
        self.isSuperseded = isSuperseded
        parts = former.parts
        texts = former.texts
        deliveries = former.deliveries
        storedAt = former.storedAt
        contentHash = former.contentHash
        compiled = former.compiled
        forcedVariations = Self.resolve(forced, former.datafile)
        self.schema = schema
        askedAttributes = schema.attributes(for: former.datafile.mentions)
    }

    public var definitions: ProjectDefinitions { compiled.definitions }
    public var datafile: Datafile { compiled.datafile }

    /// The datafile as it was uploaded or generated, as JSON text. It is created at the first access.
    public var content: [UInt8] { texts.stored }
    /// The datafile as SDKs get it, as JSON text; see ``PublishedDatafile``. It is created at the first access, which
    /// takes a while for a large datafile.
    public var published: [UInt8] { texts.published }
    /// Whether ``published`` has been created.
    public var isPublished: Bool { texts.isPublished }

    /// Whether this is the id under which SDKs get the winner of a concluded experiment. The winner is delivered, not
    /// tested.
    public func delivers(experimentID: Identifier) -> Bool { deliveries.contains(experimentID) }

    /// Whether a variation is forced on the user for a test, as far as this process knows.
    public func forcesVariations(on userID: Identifier) -> Bool {
        !forcedVariations.isEmpty && forcedVariations[userID] != nil
    }

    /// Whether an attribute of a request can affect a decision: an audience uses it, or it is hashed instead of the
    /// user's id.
    func uses(attribute name: String) -> Bool {
        let key = Identifier(name)
        return name == User.bucketingIDAttribute || datafile.mentions.attributes.contains(key)
            || datafile.mentions.segments.contains { schema.segments[$0]?.mentions.attributes.contains(key) ?? false }
    }

    /// Returns the allocation of an experiment, for exposures that are decided with this datafile.
    ///
    /// - Returns: `nil` if the datafile does not have the experiment.
    public func allocation(experimentID: Identifier) -> AllocationPeriod? {
        measured(id: experimentID).map {
            AllocationPeriod(number: version, sdkKey: sdkKey, since: storedAt, allocation: $0.plannedAllocation)
        }
    }

    /// Returns the experiment with an id, or the comparison of the holdout with this id.
    func measured(id: Identifier) -> Experiment? {
        datafile.experiment(id: id) ?? datafile.holdouts.last { $0.id == id }?.comparison
    }

    /// Returns the id of the holdout with a key; `nil` if there is none.
    public func holdoutID(key: Identifier) -> Identifier? { datafile.holdouts.last { $0.key == key }?.id }

    /// Returns the version of the definitions with which an exposure to a variation enrolls a user who has no
    /// assignment.
    ///
    /// Whether the experiment was running when the exposure happened is determined when the exposure is stored; see
    /// ``StatusRules``.
    ///
    /// - Parameter isImported: whether the exposure was recorded by another system, so that the experiment may be
    ///   closed or a draft here.
    /// - Returns: `nil` if the exposure enrolls nobody: the variation does not exist, or the experiment is closed or a
    ///   draft.
    func enrollingVersion(
        experimentID: Identifier, variationID: Identifier, isImported: Bool = false
    ) -> Int64? {
        guard !isSuperseded, let experiment = datafile.experiment(id: experimentID),
            isImported || !experiment.annotations.isClosed, !datafile.isDeliveryRule(experimentID),
            experiment.variation(id: variationID) != nil,
            // A datafile of an earlier release may have ids that do not fit into a profile.
            NameRule.isVariationID(variationID.string.utf8),
            (try? NameRule.checkExperimentID(experimentID.string, at: nil)) != nil
        else { return nil }
        return catalogVersion
    }

    /// Returns the 64-bit FNV-1a hash. The constants are the offset basis and the prime of its definition.
    static func hash(_ content: [UInt8]) -> UInt64 {
        content.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }

    /// Maps the keys of forced variations to ids. As in the SDKs, unknown keys are ignored: a later datafile may have
    /// them.
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

/// The name by which SDKs identify a project.
public enum SDKKey {
    /// Returns an SDK key if it has 1 to 255 ASCII letters, digits and `+/=_.:-`.
    public static func check(_ text: String) throws(CoreError) -> String {
        let isKey = text.utf8.allSatisfy { byte in
            byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26 || "+/=_.:-".utf8.contains(byte)
        }
        guard isKey, (1...255).contains(text.utf8.count) else {
            throw CoreError(
                .invalid, "an SDK key must be 1 to 255 ASCII letters, digits and `+/=_.:-`; got '\(text)'")
        }
        return text
    }
}

extension Project {
    /// Returns the other experiments of the flags that have an experiment. Their users are about the same.
    public func others(ofFlagsWith experiment: Experiment) -> [Experiment] {
        let definitions = definitions
        let ids = definitions.flags(ofExperiment: experiment.id).flatMap { flag in
            definitions.experiments(of: flag).map(\.id)
        }
        return ids.uniqued().filter { $0 != experiment.id }.compactMap { datafile.experiment(id: $0) }
    }
}
