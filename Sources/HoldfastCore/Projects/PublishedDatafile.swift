import Bucketing
import Definitions
import JSON
import Storage
internal import Synchronization

/// The form of a datafile that SDKs get: without members that only Holdfast uses, and with concluded experiments as
/// deliveries.
///
/// SDKs decide flags by deliveries, but return no variation for the key of an experiment that is not running. In their
/// datafile an experiment with a winner is therefore running, and everybody in its audience gets the winner. It has
/// another id there, because under its own id an SDK with a User Profile Service would find the stored assignment or
/// replace it by the winner, and exposures would count.
struct PublishedDatafile {
    /// The published datafile; `nil` if it equals the stored one.
    private(set) var json: JSONValue?

    init(_ definitions: ProjectDefinitions) {
        var root = definitions.root
        var delivered: [JSONValue] = []
        /// Returns the experiments that are not deliveries.
        func split(_ owner: JSONObject) -> [JSONValue] {
            (owner["experiments"]?.array ?? []).filter { element in
                guard let delivery = element.object.flatMap(Self.delivery) else { return true }
                delivered.append(delivery)
                return false
            }
        }
        let outside = split(root)
        let groups = root.objects("groups").map { group in
            var group = group
            group["experiments"] = .array(split(group))
            return JSONValue.object(group)
        }
        guard root[Annotations.member] != nil || !delivered.isEmpty else { return }
        // Devices that make decisions need the lifetime of assignments.
        var members = JSONObject()
        members[AssignmentLifetime.member] = root[Annotations.member]?.object?[AssignmentLifetime.member]
        root[Annotations.member] = members.isEmpty ? nil : .object(members)
        if !delivered.isEmpty {
            root["experiments"] = .array(outside + delivered)
            if !groups.isEmpty { root["groups"] = .array(groups) }
        }
        json = .object(root)
    }

    private static func deliveryID(of experimentID: String) -> String { DerivedID.of("winner/\(experimentID)") }

    /// The ids of the deliveries, by which SDKs report exposures to them.
    static func deliveries(of datafile: Datafile) -> Set<Identifier> {
        var ids: Set<Identifier> = []
        for experiment in datafile.experiments where experiment.winner != nil {
            ids.insert(Identifier(deliveryID(of: experiment.id.string)))
        }
        return ids
    }

    /// Returns the delivery of an experiment; `nil` if it is not concluded, or has no winner.
    private static func delivery(_ experiment: JSONObject) -> JSONValue? {
        let annotations = experiment[Annotations.member]?.object
        guard experiment["status"] == ExperimentStatus.concluded.json, let id = experiment["id"]?.string,
            let winner = annotations?["conclusion"]?.object?.identifier("winner"),
            let variation = experiment.objects("variations").last(where: { $0.identifier("id") == winner })
        else { return nil }
        var delivery = experiment
        delivery["id"] = .string(Self.deliveryID(of: id))
        delivery["status"] = ExperimentStatus.running.json
        delivery["variations"] = [.object(variation)]
        let allocation = TrafficAllocation(ranges: [.init(entityID: winner, end: Bucketer.bucketCount)])
        delivery["trafficAllocation"] = allocation.json
        delivery["forcedVariations"] = [:]
        delivery["retiredVariations"] = nil
        delivery[Annotations.member] = nil
        return .object(delivery)
    }
}

/// The texts of a project's datafile, which are made at the first access.
final class DatafileTexts: Sendable {
    private let body: StoredDatafile.Body
    private let definitions: ProjectDefinitions
    private let made = Mutex<(stored: [UInt8]?, published: [UInt8]?)>((nil, nil))

    init(_ body: StoredDatafile.Body, _ definitions: ProjectDefinitions) {
        self.body = body
        self.definitions = definitions
    }

    /// As it is stored.
    var stored: [UInt8] {
        made.withLock { made in
            let text = made.stored ?? body.content
            made.stored = text
            return text
        }
    }

    var isPublished: Bool { made.withLock { $0.published != nil } }

    /// See ``PublishedDatafile``.
    var published: [UInt8] {
        made.withLock { made in
            let text = made.published ?? PublishedDatafile(definitions).json?.encoded() ?? made.stored ?? body.content
            made.published = text
            return text
        }
    }
}
