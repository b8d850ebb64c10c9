import Bucketing
import Chronology
import Storage
import TestSupport
import Testing

@Suite("Profile rules")
struct ProfileRulesTests {
    private let rules = ProfileRules()

    @Test
    func `Erasing what has expired deletes it and changes nothing that was visible`() throws {
        let expiring = ProfileRules(assignmentTTL: .seconds(1))
        let stored = try expiring.apply(.replace(["e": "v"]), to: nil, at: 0).result.profile
        let outcome = try expiring.apply(.erase, to: stored, at: 1_000)
        #expect(!outcome.result.existed && !outcome.result.changed)
        #expect(outcome.effect == .delete)
    }

    @Test
    func `A profile above a lowered limit may change and shrink, but not grow`() throws {
        let map = Dictionary(uniqueKeysWithValues: (0..<5).map { (Identifier("e\($0)"), Identifier("v")) })
        let stored = try rules.apply(.replace(ExperimentBucketMap(map)), to: nil, at: 0).result.profile
        let lowered = ProfileRules(assignmentLimit: 3)
        #expect(try lowered.apply(.save(["e0": "w"], onConflict: .replace), to: stored, at: 1).result.changed)
        #expect(try lowered.apply(.remove(experimentID: "e0"), to: stored, at: 1).result.profile?.count == 4)
        #expect(throws: StorageError.tooManyAssignments(limit: 3)) {
            try lowered.apply(.save(["e9": "w"], onConflict: .replace), to: stored, at: 1)
        }
    }

    @Test
    func `A save without a lifetime makes an expiring assignment permanent`() throws {
        let stored = try ProfileRules(assignmentTTL: .seconds(10)).apply(.replace(["e": "v"]), to: nil, at: 0).result
            .profile
        let saved = try rules.apply(.save(["e": "v"], onConflict: .replace), to: stored, at: 5)
        #expect(saved.result.changed)
        #expect(saved.result.profile?.earliestExpiry == nil)
    }

    @Test
    func `A lifetime beyond all time does not overflow`() throws {
        let endless = ProfileRules(assignmentTTL: .seconds(Int64.max))
        let saved = try endless.apply(.replace(["e": "v"]), to: nil, at: 1_700_000_000_000)
        #expect(saved.result.profile?["e"]?.expiresAt == .distantFuture)
    }

    @Test
    func `A save keeps the source of the assignment that it repeats`() throws {
        let assigned = try rules.apply(.assign([.init(experimentID: "e", variationID: "v")]), to: nil, at: 0)
        let saved = try rules.apply(
            .save(["e": "v", "f": "w"], onConflict: .replace), to: assigned.result.profile, at: 1)
        #expect(saved.result.profile?["e"]?.source == .bucketed)
        #expect(saved.result.profile?["f"]?.source == .saved)
    }
}
