import Bucketing
import Storage
import Testing

extension StoreContract {
    private static let ann = StickyDocumentKey(attributeName: "id", attributeValue: "ann")
    private static let phone = StickyDocumentKey(attributeName: "deviceId", attributeValue: "ann")
    private static let bob = StickyDocumentKey(attributeName: "id", attributeValue: "bob")

    public static let stickyDocuments = [
        StoreContract("A sticky document is merged key by key, and the last variation wins unless the first is kept") {
            context async throws in
            let store = context.store
            #expect(try await store.merge(["e__0": "a", "e__1": "b"], into: ann) == ["e__0": "a", "e__1": "b"])
            #expect(
                try await store.merge(["e__1": "c", "f__0": "x"], into: ann, .keep)
                    == ["e__0": "a", "e__1": "b", "f__0": "x"])
            #expect(try await store.merge(["e__1": "c"], into: ann) == ["e__0": "a", "e__1": "c", "f__0": "x"])
            #expect(
                try context.reader.stickyDocuments([bob, ann])
                    == [nil, StickyDocument(key: ann, assignments: ["e__0": "a", "e__1": "c", "f__0": "x"])])
        },
        StoreContract("Sticky documents of one value under several attributes are apart") { context async throws in
            let store = context.store
            try await store.merge(["e__0": "a"], into: ann)
            try await store.merge(["e__0": "b"], into: phone)
            #expect(try context.reader.stickyDocuments([ann, phone]).map { $0?.assignments["e__0"] } == ["a", "b"])
        },
        StoreContract("Assignments that a sticky document has already are not written again") { context async throws in
            let store = context.store
            try await store.merge(["e__0": "a"], into: ann)
            let commits = store.metrics().commits
            #expect(try await store.merge(["e__0": "a"], into: ann) == ["e__0": "a"])
            #expect(try await store.merge(["e__0": "b"], into: ann, .keep) == ["e__0": "a"])
            #expect(try await store.merge([:], into: bob) == [:])
            #expect(store.metrics().commits == commits)
            #expect(try context.reader.stickyDocuments([bob]) == [nil])
        },
        StoreContract(
            "A sticky document has no more assignments than a profile may have", rules: ProfileRules(assignmentLimit: 2)
        ) { context async throws in
            let store = context.store
            try await store.merge(["e__0": "a", "e__1": "b"], into: ann)
            await #expect(throws: StorageError.tooManyAssignments(limit: 2)) {
                try await store.merge(["e__2": "c"], into: ann)
            }
            #expect(try await store.merge(["e__1": "c"], into: ann) == ["e__0": "a", "e__1": "c"])
        },
        StoreContract("Assignments are removed from a sticky document, and the last one with the document") {
            context async throws in
            let store = context.store
            try await store.merge(["a": "1", "b": "2"], into: ann)
            #expect(try await store.merge(["c": "3"], into: ann, removing: ["a", "x"]) == ["b": "2", "c": "3"])
            #expect(try await store.merge([:], into: ann, removing: ["b", "c"]) == [:])
            #expect(try context.reader.stickyDocuments([ann]) == [nil])
            #expect(try await store.merge([:], into: bob, removing: ["a"]) == [:])
            #expect(try context.reader.stickyDocuments([bob]) == [nil])
            #expect(try await store.merge(["a": "4"], into: ann, removing: ["a"]) == ["a": "4"])
        },
        StoreContract("Sticky documents that are merged at once lose nothing") { context async throws in
            let store = context.store
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<20 {
                    group.addTask { try await store.merge([Identifier("e\(number)__0"): "v"], into: ann) }
                }
                try await group.waitForAll()
            }
            #expect(try context.reader.stickyDocuments([ann]).first??.assignments.count == 20)
        },
        StoreContract("Erasing a user erases the sticky documents of this value, whatever the attribute is called") {
            context async throws in
            let store = context.store
            for hasProfile in [true, false] {
                if hasProfile { try await store.apply(.save(["e": "v"], onConflict: .replace), to: "ann") }
                for key in [ann, phone, bob] { try await store.merge(["e__0": "a"], into: key) }
                let records = try store.read(.records(of: "ann"))
                #expect(records.stickyDocuments.map(\.attributeName) == ["deviceId", "id"])
                #expect(records.profile.exists == hasProfile)
                let result = try await store.apply(.erase, to: "ann")
                #expect(result.erased?.stickyDocuments == 2 && result.erased?.profiles == (hasProfile ? 1 : 0))
                #expect(
                    try context.reader.stickyDocuments([ann, phone, bob]).map { $0?.key } == [nil, nil, bob])
            }
        },
        StoreContract("Deleting a sticky document is recorded, without a trace of the user once erased") {
            context async throws in
            let store = context.store
            for key in [ann, phone] { try await store.merge(["e__0": "a"], into: key) }
            let author = Author(name: "on-call")
            #expect(try await store.write(.removeStickyDocument(ann, by: author)))
            #expect(try await !store.write(.removeStickyDocument(ann, by: author)))
            #expect(try context.reader.stickyDocuments([ann, phone]).map { $0?.key } == [nil, phone])
            let entry = try #require(try await store.audit().first)
            #expect(
                [entry.action, entry.author.name, entry.target, entry.userID?.string ?? ""] == [
                    "sticky.delete", "on-call", "id", "ann",
                ])
            #expect(entry.before == Array(#"{"e__0":"a"}"#.utf8))
            try await store.apply(.erase, to: "ann")
            let anonymous = try #require(try await store.audit { $0.action = .stickyDelete }.first)
            #expect(anonymous.userID == nil && anonymous.before == nil)
        },
    ]
}

extension Store {
    /// - Returns: the assignments of the document as it then is.
    @discardableResult
    fileprivate func merge(
        _ assignments: [Identifier: Identifier], into key: StickyDocumentKey,
        _ rule: ProfileChange.ConflictRule = .replace, removing removed: Set<Identifier> = []
    ) async throws -> [Identifier: Identifier] {
        let change = StickyDocumentChange(key: key, assignments: assignments, removing: removed, onConflict: rule)
        return try await write(.stickyDocument(change)).assignments
    }
}
