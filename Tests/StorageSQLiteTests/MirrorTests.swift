import Bucketing
import Dispatch
import JSON
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// The file of an edge, which repeats what another database says.
    @Suite("Mirror")
    struct MirrorTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore

        init() throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory) {
                $0.isEdge = true
                $0.settings.feed = .off
            }
        }

        private func mirror(_ changes: [MirroredChange], of userID: Identifier, at number: Int64 = 1) throws {
            var state = try store.edgeState()
            state.cursor = FeedCursor(epoch: 7, number: number, lines: 0)
            try store.mirror([(userID, changes)], reaching: state)
        }

        private func profile(_ userID: Identifier) throws -> ProfileRecord? {
            try store.read { $0.profile(of: userID, $1) }
        }

        private func attributes(_ userID: Identifier) throws -> AttributeRecord? {
            try store.read { $0.attributes(of: userID, $1) }
        }

        private func assignment(_ variation: Identifier, layer: OverrideLayer? = nil) -> Assignment {
            Assignment(
                variationID: variation, source: layer == nil ? .bucketed : .override, assignedAt: 1, updatedAt: 2,
                expiresAt: nil, layer: layer)
        }

        @Test func `Changes are repeated as they are, and a second time change nothing`() throws {
            let layer = OverrideLayer(author: "root", reason: "support", beneath: assignment("a"))
            let changes: [MirroredChange] = [
                .assignment(experimentID: "1", assignment("a")), .assignment(experimentID: "2", assignment("b")),
                .assignment(experimentID: "1", assignment("c", layer: layer)),
                .assignment(experimentID: "2", nil), .assignment(experimentID: "3", nil),
            ]
            for number in 1...2 {
                try mirror(changes, of: "ada", at: Int64(number))
                #expect(try profile("ada") == ProfileRecord(["1": assignment("c", layer: layer)]))
                #expect(try store.edgeState().cursor?.number == Int64(number))
                #expect(store.metrics().profiles == 1)
                #expect(store.metrics().assignments == 1)
            }
            try mirror([.profile], of: "bob")
            #expect(try profile("bob") == .empty)
            try mirror([.assignment(experimentID: "3", nil)], of: "cy")
            #expect(try profile("cy") == nil)
            store.close()
        }

        @Test func `An erasure leaves nothing, and neither does becoming part of another`() throws {
            let values = try #require(AttributeRecord(checking: [1]))
            for (end, mark) in [
                (MirroredChange.erasure, ErasureRules.hash("ada")),
                (.merge(into: "eve"), ErasureRules.mergeHash("ada")),
            ] {
                try mirror(
                    [.assignment(experimentID: "1", assignment("a")), .attributes(values)], of: "ada")
                try mirror([end], of: "ada")
                #expect(try profile("ada") == nil)
                #expect(try attributes("ada") == nil)
                #expect(try store.read(.removals(after: 0)).contains { $0.mark == mark })
                try mirror([end, .assignment(experimentID: "1", assignment("b"))], of: "ada")
                #expect(try profile("ada")?.variationID(for: "1") == "b")
            }
            store.close()
        }

        @Test func `A range of users becomes that of the other database, and the others stay`() throws {
            for user in ["a", "b", "c", "d", "e"] {
                try mirror([.assignment(experimentID: "1", assignment("old"))], of: Identifier(user))
            }
            let users = ["b", "bb", "c"].map { user in
                MirroredUser(
                    userID: Identifier(user), profile: ProfileRecord(["1": assignment(user == "c" ? "old" : "new")]),
                    attributes: nil)
            }
            let state = try store.edgeState()
            try store.replaceUsers(with: users, after: "a", through: "d", reaching: state)
            let found = try ["a", "b", "bb", "c", "d", "e"].map {
                try profile(Identifier($0))?.variationID(for: "1")
            }
            #expect(found == ["old", "new", "new", "old", nil, "old"])
            try store.replaceUsers(with: [], after: "d", through: nil, reaching: state)
            #expect(try profile("e") == nil)
            #expect(store.metrics().profiles == 4)
            store.close()
        }

        @Test func `Definitions keep the versions of the other database`() throws {
            func state(_ changes: Int64, _ newest: Int64, _ versions: [Int64]) -> ProjectState {
                ProjectState(
                    changes: changes, projects: [ProjectRecord(sdkKey: "p", createdAt: 1, isDefault: true)],
                    newestDatafile: newest,
                    datafiles: versions.map {
                        StoredDatafile(
                            version: $0, sdkKey: "p", revision: "\($0)", body: .whole(Array("{}".utf8)), storedAt: 1,
                            author: "root")
                    }, forcedVariations: [], schema: .empty)
            }
            let edge = try store.edgeState()
            for (changes, newest, versions, isWhole, active) in [
                (5, 17, [12], false, 12), (6, 18, [18], false, 18), (7, 18, [], false, 18), (1, 3, [3], true, 3),
            ] as [(Int64, Int64, [Int64], Bool, Int64)] {
                try store.mirror(state(changes, newest, versions), isWhole: isWhole, reaching: edge)
                let found = try #require(try store.read(.projects(ifChangedSince: -1, datafilesAfter: 0)))
                #expect(found.newestDatafile == newest)
                #expect(found.datafiles.map(\.version) == [active])
            }
            store.close()
        }

        @Test(arguments: 0..<5) func `Datafiles in parts are those of the other database, read whole and by changes`(
            seed: UInt64
        ) throws {
            var random = SeededGenerator(seed: seed)
            var former: DatafileParts.Known?
            var (known, read): (DatafileParts?, Int64) = (nil, 0)
            let edge = try store.edgeState()
            for version in Int64(1)...30 {
                let keys = (0..<9).filter { _ in Bool.random(using: &random) }.shuffled(using: &random)
                let elements = keys.map {
                    ["key": .string("\($0)"), "value": .bool(.random(using: &random))] as JSONValue
                }
                let document: JSONValue = ["revision": .integer(version), "experiments": .array(elements)]
                let isUpload = Int.random(in: 0..<6, using: &random) == 0
                let root = try #require(document.object)
                let (parts, change) = try #require(DatafileParts.edited(to: root, since: former))
                let body: StoredDatafile.Body =
                    isUpload ? .whole(document.encoded()) : former == nil ? .parts(parts) : .change(change)
                former = isUpload ? nil : (root, parts)
                let datafile = StoredDatafile(
                    version: version, sdkKey: "p", revision: "\(version)", body: body, storedAt: 1, author: "root")
                try store.mirror(
                    ProjectState(
                        changes: version, projects: [ProjectRecord(sdkKey: "p", createdAt: 1, isDefault: true)],
                        newestDatafile: version, datafiles: [datafile], forcedVariations: [], schema: .empty),
                    isWhole: false, reaching: edge)
                guard Bool.random(using: &random) else { continue }
                let state = try #require(
                    try store.read(.projects(ifChangedSince: -1, datafilesAfter: read, elementsAfter: read)))
                #expect(state.datafiles.map(\.version) == [version])
                let found = try #require(state.datafiles.first)
                known = found.body.parts(after: known)
                #expect((known?.joined ?? found.content) == document.encoded())
                read = version
            }
            store.close()
        }

        @Test func `A file is either an edge's or a database of its own`() throws {
            store.close()
            #expect(throws: DatabaseError.self) { try SQLiteStore.make(in: directory) }
            try SQLiteStore.make(in: directory) { $0.isEdge = true }.close()
        }

        @Test func `The outbox keeps what waits, in order and within its limits`() throws {
            store.close()
            let path = directory.file("outbox")
            func open() throws -> EventOutbox {
                try EventOutbox(path: path, entries: 4, bytes: 1 << 20, lockTimeout: 0.1) {}
            }
            func append(_ texts: [(Identifier, String)], to outbox: EventOutbox) throws {
                let outcome = Outcome<Void>()
                outbox.append(texts.map { ($0.0, Array($0.1.utf8)) }) { outcome.settle($0) }
                try outcome.wait().get()
            }
            func content(_ outbox: EventOutbox) throws -> [String] {
                try outbox.first(10, bytes: 1 << 20).map {
                    "\($0.userID?.string ?? ""): \(String(decoding: $0.content, as: UTF8.self))"
                }
            }
            var outbox = try open()
            try append([("ada", "1"), ("bob", "2")], to: outbox)
            #expect(throws: DatabaseError.self) { try open() }
            outbox.close()
            outbox = try open()
            #expect(outbox.waiting.entries == 2)
            try append([("ada", "3"), ("cy", "4")], to: outbox)
            #expect(throws: StorageError.overloaded) { try append([("dan", "5")], to: outbox) }
            #expect(try content(outbox) == ["ada: 1", "bob: 2", "ada: 3", "cy: 4"])
            try outbox.remove([try #require(try outbox.first(1, bytes: 1).first?.number)])
            #expect(try content(outbox) == ["bob: 2", "ada: 3", "cy: 4"])
            #expect(outbox.waiting.entries == 3)
            outbox.close()
        }
    }
}
