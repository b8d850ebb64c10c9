import Bucketing
import Definitions
import JSON
import Storage
internal import Synchronization

/// The form of a datafile that SDKs get: without the members that only Holdfast uses, and with deliveries in the place
/// of concluded experiments that have a winner.
///
/// A delivery is a running experiment that gives the winner to everybody in its audience. SDKs need it, because they
/// return no variation for the key of an experiment that is not running.
///
/// A delivery does not have the id of its experiment. Otherwise an SDK with a User Profile Service would use the stored
/// assignment instead of the winner, or replace it by the winner, and Holdfast would count exposures to the winner.
struct PublishedDatafile {
    /// The published datafile; `nil` if it equals the stored one.
    private(set) var json: JSONValue?

    init(_ definitions: ProjectDefinitions) {
        var root = definitions.root
        var deliveries: [JSONValue] = []
        /// Returns the experiments of the root or of a group that stay, and adds deliveries for the others.
        func replaceConcluded(of owner: JSONObject) -> [JSONValue] {
            (owner["experiments"]?.array ?? []).filter { element in
                guard let delivery = element.object.flatMap(Self.delivery) else { return true }
                deliveries.append(delivery)
                return false
            }
        }
        let experiments = replaceConcluded(of: root)
        let groups = root.objects("groups").map { group in
            var group = group
            group["experiments"] = .array(replaceConcluded(of: group))
            return JSONValue.object(group)
        }
        guard root[Annotations.member] != nil || !deliveries.isEmpty else { return }
        // Devices that decide by themselves need the assignment lifetime, so this annotation stays.
        var annotations = JSONObject()
        annotations[AssignmentLifetime.member] = root[Annotations.member]?.object?[AssignmentLifetime.member]
        root[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        if !deliveries.isEmpty {
            // A delivery is in no group, because everybody gets the winner.
            root["experiments"] = .array(experiments + deliveries)
            if !groups.isEmpty { root["groups"] = .array(groups) }
        }
        json = .object(root)
    }

    /// Returns the id of the delivery of an experiment. It is derived, so that it stays the same.
    private static func deliveryID(of experimentID: String) -> String { DerivedID.of("winner/\(experimentID)") }

    /// Returns the ids of all deliveries. SDKs report exposures to deliveries by these ids.
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

/// The JSON texts of a project's datafile. Each is created at the first access and then kept, because creating it takes
/// a while for a large datafile, and most versions of a datafile are never requested as text.
final class DatafileTexts: Sendable {
    private let body: StoredDatafile.Body
    private let definitions: ProjectDefinitions
    /// The texts that have been created.
    private struct Texts {
        var stored: [UInt8]?
        var published: [UInt8]?
    }

    private let texts = Mutex(Texts())

    init(_ body: StoredDatafile.Body, _ definitions: ProjectDefinitions) {
        self.body = body
        self.definitions = definitions
    }

    /// The datafile as it is stored.
    var stored: [UInt8] {
        texts.withLock { texts in
            let text = texts.stored ?? body.content
            texts.stored = text
            return text
        }
    }

    /// Whether ``published`` has been created.
    var isPublished: Bool { texts.withLock { $0.published != nil } }

    /// The datafile as SDKs get it; see ``PublishedDatafile``.
    var published: [UInt8] {
        texts.withLock { texts in
            if let text = texts.published { return text }
            let text = PublishedDatafile(definitions).json?.encoded() ?? texts.stored ?? body.content
            texts.published = text
            return text
        }
    }
}
