import Bucketing
import Chronology
import Definitions
import JSON
import Logging
import Storage
import TestSupport

@testable import HoldfastCore

/// One of the processes on a database, whose schedules and ramps a test drives.
struct RampProcess {
    let store: InMemoryStore
    let catalog: ProjectCatalog
    let scheduler: ExperimentScheduler
    static let sdkKey = "default"

    init(_ store: InMemoryStore) throws {
        self.store = store
        catalog = try ProjectCatalog(store: store, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        scheduler = ExperimentScheduler(catalog, store: store)
    }

    /// Changes the experiment `e`, or another one.
    func put(_ body: JSONValue, key: String = "e") async throws {
        try await edit { definitions throws(CoreError) in try ExperimentChange(body, key: key).apply(to: &definitions) }
    }

    func edit(_ change: @escaping @Sendable (inout ProjectDefinitions) throws(CoreError) -> Void) async throws {
        let note = ProjectEditor.Note(.experimentPut, of: "e") { _ in .null }
        _ = try await ProjectEditor(catalog, .notNeeded).edit(
            Self.sdkKey, note, by: Author(name: "test"), moves: .refuse
        ) {
            definitions, _ throws(CoreError) in try change(&definitions)
        }
    }

    /// Makes what is due, as the timer does. The first time notices the commits, the second what they changed.
    func tick() async throws {
        try await catalog.refresh()
        await scheduler.makeDueChanges()
    }

    /// The experiment as `GET` shows it.
    func shown(_ key: Identifier = "e") throws -> JSONObject {
        guard let project = catalog.snapshot().projects[Self.sdkKey],
            let experiment = project.datafile.experiment(key: key)
        else { return JSONObject() }
        let description = experiment.description(in: project.compiled, sdkKey: Self.sdkKey)
        let looks = BanditLooks(project, try store.read(.looks(sdkKey: Self.sdkKey)))
        return looks.describe(experiment, description).object ?? JSONObject()
    }

    func state(_ key: Identifier = "e") throws -> JSONObject {
        try shown(key)["ramp"]?.object?["state"]?.object ?? JSONObject()
    }

    /// Exposes users to a variation.
    func expose(_ users: Range<Int>, to variation: Identifier, of key: Identifier = "e") async throws {
        guard let project = catalog.snapshot().projects[Self.sdkKey],
            let experiment = project.datafile.experiment(key: key),
            let id = experiment.variation(key: variation)?.id
        else { return }
        let exposures = users.map { user in
            UserEvent.exposure(
                Exposure(
                    userID: Identifier("\(variation)\(user)"), experimentID: experiment.id, experimentKey: key,
                    variationID: id, happenedAt: store.clock.now(), isChosen: false, sdkKey: Self.sdkKey,
                    active: project.allocation(experimentID: experiment.id)))
        }
        _ = try await store.record(exposures)
    }

    /// The entries of the audit log that schedules and ramps made, the oldest first.
    func entries() async throws -> [AuditEntry] {
        try await store.audit { $0.limit = 1_000 }
            .filter {
                [AuditAction.experimentRamp.rawValue, AuditAction.experimentSchedule.rawValue].contains($0.action)
            }
            .reversed()
    }
}
