import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    public static let projects = [
        StoreContract("A datafile is active until the next one of its project, and the former ones are history") {
            context async throws in
            let store = context.store
            let former = try #require(try await store.activate("1"))
            let changes = try store.projectChanges()
            let latter = try #require(try await store.activate("2", replacing: former.version))
            #expect(try await store.activate("3", replacing: former.version) == nil)
            #expect(try store.projectChanges() > changes)
            #expect(try store.datafiles(after: 0).map(\.revision) == ["2"])
            #expect(try store.datafiles(after: 0).map(\.content) == [Array("2".utf8)])
            #expect(try store.datafiles(after: latter.version).isEmpty)
            #expect(try store.datafileHistory(sdkKey: "key", limit: 10).map(\.revision) == ["2", "1"])
            #expect(try store.datafile(sdkKey: "key", version: former.version)?.content == Array("1".utf8))
            #expect(try store.datafile(sdkKey: "key", version: latter.version + 1) == nil)
            #expect(try store.datafile(sdkKey: "other", version: former.version) == nil)
        },
        StoreContract("Assignments are stored only if they were decided with the newest datafile of all projects") {
            context async throws in
            let store = context.store
            func assign(_ variation: Identifier, _ version: Int64, replacing: Identifier? = nil) async throws
                -> Identifier?
            {
                let proposal = ProfileChange.Candidate(experimentID: "e", variationID: variation, replacing: replacing)
                let change = ProfileChange.Operation.assign([proposal], decidedWith: version)
                return try await store.apply(change, to: "user").profile?.variationID(for: "e")
            }
            let former = try #require(try await store.activate("1")).version
            #expect(try await assign("a", former) == "a")
            let newest = try #require(try await store.activate("2", sdkKey: "other")).version
            for version in [0, former, newest + 1] {
                await #expect(throws: StorageError.staleDatafile) { try await assign("b", version, replacing: "a") }
                await #expect(throws: StorageError.staleDatafile) { try await assign("a", version) }
            }
            #expect(try await assign("b", newest, replacing: "a") == "b")
        },
        StoreContract("A datafile may require that no project has got another one since") { context async throws in
            let store = context.store
            let first = try #require(try await store.activate("1", among: 0)).version
            #expect(try await store.activate("1", sdkKey: "other", among: 0) == nil)
            #expect(try store.projectNames() == ["key*"])
            let second = try #require(try await store.activate("1", sdkKey: "other", among: first)).version
            #expect(try await store.activate("2", replacing: first, among: first) == nil)
            #expect(try await store.activate("2", replacing: first, among: second) != nil)
        },
        history(1), history(3),
        StoreContract("Only the first project is made by its datafile, unless that is wanted") {
            context async throws in
            let store = context.store
            #expect(try store.projectNames().isEmpty)
            #expect(try await store.activate("1", sdkKey: "shop", makesProject: false) != nil)
            #expect(try store.projectNames() == ["shop*"])
            let changes = try store.projectChanges()
            #expect(try await store.activate("1", sdkKey: "shpo", replacing: 0, makesProject: false) == nil)
            #expect(try await store.activate("1", sdkKey: "shpo", makesProject: false) == nil)
            #expect(try store.projectNames() == ["shop*"])
            #expect(try store.projectChanges() == changes)
            #expect(try await store.activate("1", sdkKey: "app", makesProject: true) != nil)
            #expect(try await store.activate("2", sdkKey: "shop", makesProject: false) != nil)
            #expect(try store.projectNames() == ["app", "shop*"])
        },
        StoreContract("A project is made with an empty datafile, named, and made the default") {
            context async throws in
            let store = context.store
            let start = context.clock.now
            #expect(
                try await store.putProject("shop", name: "Shop")
                    == .created(ProjectRecord(sdkKey: "shop", name: "Shop", createdAt: start, isDefault: true)))
            #expect(try store.datafiles(after: 0).map(\.revision) == ["0"])
            #expect(try store.datafiles(after: 0).map(\.content) == [Array("empty".utf8)])
            context.clock.advance(by: .seconds(1))
            #expect(
                try await store.putProject("app")
                    == .created(ProjectRecord(sdkKey: "app", createdAt: start + 1_000, isDefault: false)))
            var changes = try store.projectChanges()
            #expect(
                try await store.putProject("shop")
                    == .unchanged(ProjectRecord(sdkKey: "shop", name: "Shop", createdAt: start, isDefault: true)))
            #expect(try store.projectChanges() == changes)
            #expect(
                try await store.putProject("app", becomesDefault: true)
                    == .changed(ProjectRecord(sdkKey: "app", createdAt: start + 1_000, isDefault: true)))
            #expect(try store.projectNames() == ["app*", "shop"])
            #expect(try store.projectChanges() > changes)
            changes = try store.projectChanges()
            try await store.putProject("shop", name: "")
            #expect(try store.projects()?.projects.map(\.name) == ["", ""])
            #expect(try store.projectChanges() > changes)
            let actions = try await store.audit { $0.action = .projectPut }.map { "\($0.author.name) \($0.target)" }
            #expect(actions == ["test shop", "test app", "test app", "test shop"])
        },
        StoreContract("A project is deleted with its history, unless it is the default or has changed") {
            context async throws in
            let store = context.store
            try await store.putProject("shop")
            try await store.putProject("app")
            let version = try #require(try store.datafileHistory(sdkKey: "app", limit: 1).first?.version)
            try await store.force("a", sdkKey: "app")
            #expect(try await store.removeProject("other", expecting: 0) == .absent)
            #expect(try await store.removeProject("shop", expecting: version - 1) == .isDefault)
            #expect(try await store.removeProject("app", expecting: version - 1) == .changed)
            #expect(try await store.removeProject("app", expecting: version) == .removed)
            #expect(try store.projectNames() == ["shop*"])
            #expect(try store.datafileHistory(sdkKey: "app", limit: 9).isEmpty)
            #expect(try store.forcedVariations().isEmpty)
            #expect(try await store.audit { $0.action = .projectDelete }.map(\.target) == ["app"])
            // Versions are never given twice, and what was decided with the newest one stays valid.
            #expect(try store.projects()?.newestDatafile == version)
            let assignment = ProfileChange.Operation.assign(
                [ProfileChange.Candidate(experimentID: "e", variationID: "v")], decidedWith: version)
            #expect(try await store.apply(assignment, to: "user").profile?.variationID(for: "e") == "v")
            #expect(try await store.activate("1", sdkKey: "app")?.version == version + 1)
            #expect(try await store.removeProject("shop", expecting: version - 1) == .isDefault)
            #expect(try await store.removeProject("app", expecting: version + 1) == .removed)
            #expect(try await store.removeProject("shop", expecting: version - 1) == .removed)
            #expect(try store.projectNames().isEmpty)
        },
        StoreContract("The last day of each use is kept by project, and deleted with it") { context async throws in
            let store = context.store
            try await store.putProject("shop")
            try await store.putProject("app")
            func subject(_ sdkKey: String, _ kind: LastUse.Kind, _ variation: Identifier) -> LastUse.Subject {
                LastUse.Subject(sdkKey: sdkKey, kind, "banner", variation: variation)
            }
            func note(_ uses: [LastUse]) async throws { try await store.perform { $0.write(.note(uses), $1) } }
            let uses = [
                LastUse(subject("app", .known, ""), day: 20_000),
                LastUse(subject("app", .evaluated, "on"), day: 20_001),
                LastUse(subject("app", .exposed, "7"), day: 20_002),
            ]
            let changes = try store.projectChanges()
            try await note(uses + [LastUse(subject("shop", .evaluated, "on"), day: 1)])
            #expect(Set(try store.read(.lastUses(sdkKey: "app"))) == Set(uses))
            try await note([LastUse(subject("app", .evaluated, "on"), day: 20_003)])
            #expect(try store.read(.lastUses(sdkKey: "app")).map(\.day).sorted() == [20_000, 20_002, 20_003])
            #expect(try store.projectChanges() == changes, "nobody has to read definitions again")
            let version = try #require(try store.datafileHistory(sdkKey: "app", limit: 1).first?.version)
            #expect(try await store.removeProject("app", expecting: version) == .removed)
            #expect(try store.read(.lastUses(sdkKey: "app")).isEmpty)
            #expect(try store.read(.lastUses(sdkKey: "shop")).count == 1)
        },
        StoreContract("A look of a bandit is stored once, and deleted with its project") { context async throws in
            let store = context.store
            try await store.putProject("shop")
            try await store.putProject("app")
            func look(_ sdkKey: String, at time: Instant) -> StoredLook {
                StoredLook(sdkKey: sdkKey, experimentID: "7", lookedAt: time, content: ["users": .instant(time)])
            }
            func put(_ look: StoredLook, after former: Instant?) async throws -> Bool {
                let note = AuditNote(.experimentBandit, of: "e", after: look.content)
                return try await store.write(.putLook(look, after: former, note, by: Author(name: "schedule")))
            }
            let changes = try store.projectChanges()
            let (first, second) = (look("app", at: 5), look("app", at: 9))
            #expect(try await put(first, after: nil))
            #expect(try await put(second, after: nil) == false)
            #expect(try await put(second, after: 4) == false)
            #expect(try store.read(.looks(sdkKey: "app")) == [first])
            #expect(try await put(second, after: 5))
            #expect(try await put(look("shop", at: 1), after: nil))
            #expect(try store.read(.looks(sdkKey: "app")) == [second])
            #expect(try await store.audit { $0.action = .experimentBandit }.count == 3)
            #expect(try store.projectChanges() == changes, "nobody has to read definitions again")
            let version = try #require(try store.datafileHistory(sdkKey: "app", limit: 1).first?.version)
            #expect(try await store.removeProject("app", expecting: version) == .removed)
            #expect(try store.read(.looks(sdkKey: "app")).isEmpty && store.read(.looks(sdkKey: "shop")).count == 1)
        },
        StoreContract("A proposal is decided once, with its change or without") { context async throws in
            let store = context.store
            try await store.putProject("shop")
            func proposal(_ id: String) -> Proposal {
                Proposal(
                    id: id, sdkKey: "shop", createdAt: context.clock.now, author: "ann", basis: "1", method: "PUT",
                    target: "/v1/experiments/e?moves=allow", experiments: ["e"],
                    changes: [["action": "experiment.put", "target": "e", "before": nil, "after": ["x": 1]]],
                    body: Array(#"{"x":1}"#.utf8))
            }
            let bob = Author(name: "bob", requestID: "r")
            let proposals = ["b", "a", "c"].map(proposal)
            for proposal in proposals { try await store.write(.propose(proposal, by: Author(name: "ann"))) }
            #expect(try store.read(.proposal(id: "a")) == proposals[1])
            #expect(try store.read(.proposal(id: "d")) == nil)
            #expect(Set(try store.read(.proposals(sdkKey: "shop")).map(\.id)) == ["a", "b", "c"])
            #expect(try store.read(.proposals(sdkKey: "shop")).allSatisfy { $0.body == nil })
            #expect(try store.read(.proposals(sdkKey: "other")).isEmpty)
            let changes = try store.projectChanges()
            #expect(try await store.write(.reject(proposal: "a", reason: "no", by: bob)))
            #expect(try await !store.write(.reject(proposal: "a", reason: "again", by: bob)))
            #expect(try await !store.write(.reject(proposal: "d", reason: nil, by: bob)))
            let rejected = try #require(try store.read(.proposal(id: "a")))
            #expect(rejected.status == .rejected && rejected.body == proposals[1].body)
            #expect(rejected.decision?.author == "bob" && rejected.decision?.reason == "no")
            #expect(try store.projectChanges() == changes, "nobody has to read definitions again")
            // What was rejected cannot be approved.
            let (no, yes) = (Approval(of: proposals[1], by: bob), Approval(of: proposals[0], by: bob))
            #expect(try await store.activate("1", sdkKey: "shop", approval: no) == nil)
            #expect(try await store.activate("1", sdkKey: "shop", replacing: 7, approval: yes) == nil)
            #expect(try store.read(.proposal(id: "b"))?.status == .pending)
            let stored = try await store.activate("1", sdkKey: "shop", by: Author(name: "ann"), approval: yes)
            #expect(stored != nil)
            let approved = try #require(try store.read(.proposal(id: "b")))
            #expect(approved.status == .approved && approved.decision?.author == "bob")
            #expect(try await store.activate("2", sdkKey: "shop", approval: yes) == nil)
            let entries = try await store.audit { $0.limit = 2 }
            #expect(entries.map(\.action) == ["datafile.put", "proposal.approve"])
            #expect(entries.map(\.author.name) == ["ann", "bob"])
            #expect(String(decoding: entries[0].after ?? [], as: UTF8.self).contains(#""approved_by":"bob""#))
            // Segments without a datafile.
            var schema = SchemaChange()
            schema.segments = [Segment(name: "s", conditions: ["and", []])]
            #expect(try await !store.write(.putSchema(schema, approval: no, by: bob)))
            #expect(try await store.write(.putSchema(schema, approval: Approval(of: proposals[2], by: bob), by: bob)))
            #expect(try store.read(.proposal(id: "c"))?.status == .approved)
            // Only the last are kept.
            for number in 0..<Proposal.limit {
                context.clock.advance(by: .milliseconds(1))
                try await store.write(.propose(proposal("n\(number)"), by: bob))
            }
            let kept = try store.read(.proposals(sdkKey: "shop")).map(\.id)
            #expect(kept.count == Proposal.limit && kept.first == "n\(Proposal.limit - 1)")
            #expect(try store.read(.proposal(id: "a")) == nil)
            try await store.putProject("main", becomesDefault: true)
            let version = try #require(try store.datafileHistory(sdkKey: "shop", limit: 1).first?.version)
            #expect(try await store.removeProject("shop", expecting: version) == .removed)
            #expect(try store.read(.proposals(sdkKey: "shop")).isEmpty)
        },
        StoreContract("The datafile that was active at a time is found while it is kept", datafileHistory: 2) {
            context async throws in
            let (store, start) = (context.store, context.clock.now)
            _ = try await store.activate("start", by: .processUser)
            for revision in ["1", "2", "3"] {
                context.clock.advance(by: .seconds(10))
                _ = try await store.activate(revision)
            }
            func revision(_ seconds: Int64, sdkKey: String = "key") throws -> String? {
                let datafile = try store.datafile(sdkKey: sdkKey, activeAt: start + .seconds(seconds))
                return datafile?.revision
            }
            #expect(try [20, 25, 30, 99].map { try revision($0) } == ["2", "2", "3", "3"])
            #expect(try store.datafile(sdkKey: "key", activeAt: start + 20_000)?.content == Array("2".utf8))
            // Between the one of the start and the kept ones there were others.
            #expect(try [-1, 0, 10, 19].allSatisfy { try revision($0) == nil })
            #expect(try revision(30, sdkKey: "other") == nil)
        },
        parts(seed: 1), parts(seed: 2), parts(seed: 3),
        StoreContract("A forced variation is reported, replaced and removed") { context async throws in
            let store = context.store
            #expect(try await store.force("a") == nil)
            #expect(try await store.force("b") == "a")
            #expect(try store.forcedVariations().map(\.variationKey) == ["b"])
            #expect(try await store.force(nil) == "b")
            #expect(try store.forcedVariations().isEmpty)
        },
        StoreContract("Erasing a user leaves no forced variation") { context async throws in
            try await context.store.force("a")
            try await context.store.apply(.erase, to: "user")
            #expect(try context.store.forcedVariations().isEmpty)
        },
    ]

    /// Random uploads and edits of two projects, each of which is read as it was stored, also after others: whole, by the
    /// changes since the last, and by its version.
    private static func parts(seed: UInt64) -> StoreContract {
        StoreContract("What edits store in parts is read as it was, while it is kept, \(seed)", datafileHistory: 4) {
            context async throws in
            let store = context.store
            var random = SeededGenerator(seed: seed)
            var stored: [String: [(version: Int64, content: [UInt8])]] = [:]
            var active: [String: DatafileParts.Known] = [:]
            var known: (version: Int64, parts: [String: DatafileParts], contents: [String: [UInt8]]) = (0, [:], [:])
            for step in 1...60 {
                let sdkKey = ["one", "two"].randomElement(using: &random) ?? ""
                let replaced = stored[sdkKey]?.last?.version ?? 0
                let written: StoredDatafile?
                if Int.random(in: 0..<8, using: &random) == 0 {
                    active[sdkKey] = nil
                    written = try await store.activate("\(step)", sdkKey: sdkKey)
                } else {
                    func elements() -> JSONValue {
                        let keys = (0..<9).filter { _ in Bool.random(using: &random) }.shuffled(using: &random)
                        return .array(
                            keys.map { ["key": .string("\($0)"), "value": .bool(Bool.random(using: &random))] })
                    }
                    let root: JSONValue = [
                        "revision": .integer(Int64(step)), "experiments": elements(),
                        "groups": [["id": "g", "experiments": elements()]],
                    ]
                    let document = try #require(root.object)
                    let edit = try #require(DatafileParts.edited(to: document, since: active[sdkKey]))
                    written = try await store.activate(
                        edit.parts, edit.change, sdkKey: sdkKey, replacing: replaced)
                    active[sdkKey] = (document, edit.parts)
                }
                let datafile = try #require(written)
                stored[sdkKey, default: []].append((datafile.version, datafile.content))

                #expect(try store.datafiles(after: replaced).last?.content == datafile.content)
                if Bool.random(using: &random) {
                    let state = try #require(
                        try store.read(
                            .projects(
                                ifChangedSince: -1, datafilesAfter: known.version, elementsAfter: known.version)))
                    for read in state.datafiles {
                        known.parts[read.sdkKey] = read.body.parts(after: known.parts[read.sdkKey])
                        known.contents[read.sdkKey] = known.parts[read.sdkKey]?.joined ?? read.content
                    }
                    known.version = state.newestDatafile
                    for (key, all) in stored { #expect(known.contents[key] == all.last?.content) }
                }
                for (version, content) in (stored[sdkKey] ?? []).suffix(4) {
                    #expect(try store.datafile(sdkKey: sdkKey, version: version)?.content == content)
                }
            }
            let gone = try #require(stored["one"]?.first)
            #expect(try store.datafile(sdkKey: "one", version: gone.version) == nil)
            for (sdkKey, all) in stored { try expectVersions(of: sdkKey, Array(all.suffix(4)), in: store) }
        }
    }

    /// Expects that the elements of all versions that are kept are found by their keys.
    private static func expectVersions(
        of sdkKey: String, _ kept: [(version: Int64, content: [UInt8])], in store: any Store
    ) throws {
        for keys in [Set((0..<9).map { Identifier("\($0)") }), ["3", "4", "a\0b", "\"'"], []] {
            let found = try store.read(.definitionVersions(sdkKey: sdkKey, keys: keys))
            #expect(found.datafiles.map(\.version) == kept.reversed().map(\.version))
            for datafile in found.datafiles {
                let elements = found.elements(in: datafile.version)
                guard case .parts(let parts) = datafile.body else {
                    #expect(datafile.content.isEmpty && elements.isEmpty)
                    continue
                }
                let stored = try store.datafile(sdkKey: sdkKey, version: datafile.version)
                let all = stored?.body.parts(after: nil)
                let wanted = (all?.elements ?? []).filter { keys.contains($0.name.key) }
                #expect(parts.base == all?.base)
                #expect(DatafileParts(base: [], elements: elements).elements == wanted)
            }
        }
    }

    private static func history(_ count: Int) -> StoreContract {
        StoreContract(
            "Of each project \(count) datafiles are kept as configured, and the last one of a start",
            datafileHistory: count
        ) { context async throws in
            let store = context.store
            for number in 1...2 { _ = try await store.activate("start \(number)", by: .processUser) }
            for number in 1...10 {
                _ = try await store.activate("\(number)")
                _ = try await store.activate("other \(number)", sdkKey: "other")
            }
            let kept = (0..<count).map { "\(10 - $0)" }
            #expect(try store.datafileHistory(sdkKey: "key", limit: 100).map(\.revision) == kept + ["start 2"])
            #expect(
                try store.datafileHistory(sdkKey: "other", limit: 100).map(\.revision) == kept.map { "other \($0)" })
            #expect(try store.datafiles(after: 0).map(\.revision).sorted() == ["10", "other 10"])
            #expect(try store.lastDatafile(sdkKey: "key", by: .processUser)?.revision == "start 2")
        }
    }
}
