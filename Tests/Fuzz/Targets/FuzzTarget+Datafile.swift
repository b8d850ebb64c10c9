import Bucketing
import Definitions
import JSON
import TestSupport

@testable import HoldfastCore

extension FuzzTarget {
    /// Whatever datafile is accepted decides for every user, and always alike.
    static let datafile = FuzzTarget(name: "datafile") { bytes in
        guard let value = try? JSONParser().parse(bytes), let datafile = try? Datafile(value) else { return }
        var random = Cuts.generator(for: bytes)
        let service = DecisionService(datafile: datafile)
        for user in User.some(of: datafile, using: &random) {
            let stored = storedAssignments(of: datafile, using: &random)
            for options in [DecideOptions.includeReasons, [.ignoreUserProfileService, .enabledFlagsOnly]] {
                let first = service.decideAll(for: user, stored: stored, options: options)
                let second = service.decideAll(for: user, stored: stored, options: options)
                try expectSame(first.value.map(\.variation?.key), second.value.map(\.variation?.key), "decided twice")
            }
            for experiment in datafile.experiments {
                _ = service.variation(of: experiment, for: user, stored: stored, options: .includeReasons)
            }
        }
    }

    private static func storedAssignments(
        of datafile: Datafile, using random: inout SeededGenerator
    ) -> [Identifier: StoredAssignment] {
        var stored: [Identifier: StoredAssignment] = [:]
        for experiment in datafile.experiments where Bool.random(using: &random) {
            let known = experiment.variations.randomElement(using: &random)?.id
            stored[experiment.id] = StoredAssignment(
                variationID: known ?? "gone", isOverride: Bool.random(using: &random))
        }
        return stored
    }

    /// A definition that is accepted makes a datafile that compiles, and can be applied again.
    static let experiment = FuzzTarget(name: "experiment") { bytes in
        guard let value = try? JSONParser(maximumDepth: 64).parse(bytes) else { return }
        var definitions = ProjectDefinitions(projectID: "p")
        for _ in 0..<2 {
            let former = definitions
            guard let change = try? ExperimentChange(value, key: "k"),
                (try? change.apply(to: &definitions)) != nil
            else { return }
            definitions.generate(since: former)
            guard let datafile = try? Datafile(definitions.datafile) else { return }
            guard let ranges = datafile.experiment(key: "k")?.trafficAllocation.ranges else {
                throw Finding("the experiment is not there")
            }
            let ends = ranges.map(\.end)
            guard ends == ends.sorted(), (ends.last ?? 0) <= Bucketer.bucketCount else {
                throw Finding("ranges out of order or beyond the last bucket: \(ends)")
            }
        }
    }
}
