import Bucketing
import HTTPServer
import JSON
import Storage

/// What an SDK key stands for: the datafile in force, compiled, and the variations forced on users.
final class Project: Sendable {
    let sdkKey: String
    /// The stored version of the datafile; counts the datafiles of all projects.
    let version: Int64
    /// The version of the newest datafile of any project that was known when this was made. Assignments that are
    /// decided with this project are stored only while it is still the newest.
    let catalogVersion: Int64
    /// Whether the active datafile cannot be used by this process, so that this is a former one. It serves those who
    /// have an assignment, and enrolls nobody.
    let isSuperseded: Bool
    let datafile: Datafile
    /// The datafile as it was brought.
    let content: [UInt8]
    let entityTag: EntityTag
    /// By user, then by experiment id: the id of the variation that is forced.
    let forcedVariations: [Identifier: [Identifier: Identifier]]
    /// The attributes and segments that are defined, for all projects.
    let schema: AttributeSchema
    /// The names of the stored attributes that the audiences ask for.
    let askedAttributes: [String]

    /// - Throws: `Problem` when the datafile is not usable, naming every member that is wrong.
    convenience init(_ stored: StoredDatafile) throws(Problem) {
        self.init(stored, try Self.compile(stored.content))
    }

    /// A stored datafile by itself, without what the catalog knows.
    ///
    /// - Parameter datafile: the compiled content.
    init(_ stored: StoredDatafile, _ datafile: Datafile) {
        sdkKey = stored.sdkKey
        version = stored.version
        catalogVersion = stored.version
        isSuperseded = false
        content = stored.content
        entityTag = stored.content.withUnsafeBytes { EntityTag(hashing: $0) }
        self.datafile = datafile
        forcedVariations = [:]
        schema = .empty
        askedAttributes = []
    }

    /// The same datafile in a catalog that has changed.
    init(
        _ former: Project, forced: [ForcedVariation], schema: AttributeSchema, catalogVersion: Int64, isSuperseded: Bool
    ) {
        sdkKey = former.sdkKey
        version = former.version
        self.catalogVersion = catalogVersion
        self.isSuperseded = isSuperseded
        content = former.content
        entityTag = former.entityTag
        datafile = former.datafile
        forcedVariations = Self.resolve(forced, former.datafile)
        self.schema = schema
        askedAttributes = schema.attributes(for: former.datafile.mentions)
    }

    private static let parser = JSONParser(maximumDepth: 128)

    /// - Throws: 400, with all that is wrong as `errors`.
    static func compile(_ content: [UInt8]) throws(Problem) -> Datafile {
        let value: JSONValue
        do throws(JSONError) {
            value = try parser.parse(content)
        } catch {
            throw Problem(error, in: "the datafile")
        }
        return try compile(value)
    }

    /// A datafile that is to be put in force. Those that are in force are not held to what came later.
    ///
    /// - Throws: 400 also when an experiment or a variation has an id that a profile could not hold.
    static func accept(_ content: [UInt8]) throws(Problem) -> Datafile {
        let datafile = try compile(content)
        // Assignments to delivery rules are not stored, and the rules' ids are of other forms.
        for experiment in datafile.experimentsBesideRules {
            do throws(Problem) {
                _ = try ProfileBody.checkExperimentID(experiment.id.string, at: nil)
            } catch {
                throw Problem(
                    .badRequest, "\(error.detail), in the experiment '\(experiment.key)'")
            }
            for variation in experiment.variations where !ProfileBody.isVariationID(variation.id.string.utf8) {
                throw Problem(
                    .badRequest,
                    "a variation id must be 1 to 255 bytes long; got \(variation.id.string.utf8.count), in the variation "
                        + "'\(variation.key)' of the experiment '\(experiment.key)'")
            }
        }
        return datafile
    }

    static func compile(_ value: JSONValue) throws(Problem) -> Datafile {
        do throws(DatafileError) {
            return try Datafile(value)
        } catch {
            let first = error.problems.first
            var problem = Problem(
                .badRequest, "the datafile is not usable: \(first?.description ?? "it is empty")", at: first?.pointer)
            problem.members = [
                (
                    "errors",
                    .array(error.problems.prefix(100).map { ["pointer": .string($0.pointer.string), "detail": .string($0.reason)] })
                )
            ]
            throw problem
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
