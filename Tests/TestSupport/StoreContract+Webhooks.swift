import Bucketing
import Chronology
import JSON
import Storage
import Testing

extension StoreContract {
    private static let admin = Author(name: "ada", requestID: "r")
    private static let definition = Webhook.Definition(
        url: "https://ops.example/", events: ["*"], sdkKey: nil, format: .standard, isEnabled: true,
        secrets: [Webhook.Secret("whsec_AA==")], secretFile: nil)

    private static func define(
        _ store: any Store, _ definition: Webhook.Definition = definition, replacing former: Webhook.Definition? = nil,
        skips: Bool = false
    ) async throws -> Bool {
        try await store.write(
            .webhook(
                WebhookChange(
                    "ops", definition, replacing: former, skips: skips, AuditNote(.webhookPut, of: "ops")), by: admin))
    }

    private static func webhook(_ store: any Store) async throws -> Webhook? {
        try await store.perform { $0.read(.webhooks, $1) }.first
    }

    private static func claim(_ store: any Store, _ holder: String) async throws -> Webhook? {
        try await store.write(.claimWebhook("ops", by: holder, for: 1_000))
    }

    public static let webhooks = [
        StoreContract("A webhook begins with what happens after it was made, and is stored as it was given") {
            context async throws in
            let store = context.store
            try await store.record(AuditNote(.tokensReload, of: "before"), by: admin)
            var given = definition
            (given.sdkKey, given.format, given.secretFile) = ("shop", .slack, "file")
            given.secrets.append(Webhook.Secret("whsec_BB==", until: 7_000))
            #expect(try await define(store, given))
            #expect(try await webhook(store)?.definition == given)
            let position = try #require(try await webhook(store)).state.position
            #expect(position == 1)
            try await store.record(AuditNote(.tokensReload, of: "after", in: "shop"), by: admin)
            let entries = try await store.perform { $0.read(.auditTail(after: position, limit: 10), $1) }
            #expect(entries.map(\.target) == ["ops", "after"])
            #expect(entries.map(\.sdkKey) == [nil, "shop"])
            #expect(
                try await store.perform { $0.read(.auditTail(after: 0, limit: 2), $1) }.map(\.target) == [
                    "before", "ops",
                ])
        },
        StoreContract("A webhook is changed only by those who know how it is") { context async throws in
            let store = context.store
            #expect(try await define(store))
            #expect(try await !define(store))
            var other = definition
            other.events = ["flag.*"]
            #expect(try await define(store, other, replacing: definition))
            #expect(try await !define(store, definition, replacing: definition))
            #expect(try await webhook(store)?.definition == other)
            for isThere in [true, false] {
                let removal = WebhookChange("ops", nil, replacing: other, AuditNote(.webhookDelete, of: "ops"))
                #expect(try await store.write(.webhook(removal, by: admin)) == isThere)
            }
            #expect(try await webhook(store) == nil)
        },
        StoreContract("A project is deleted with its own webhooks, a webhook by its key, in any order") {
            context async throws in
            let store = context.store
            func define(_ key: String, of sdkKey: String?) async throws -> Webhook.Definition {
                var given = definition
                given.sdkKey = sdkKey
                let change = WebhookChange(key, given, replacing: nil, AuditNote(.webhookPut, of: key))
                #expect(try await store.write(.webhook(change, by: admin)))
                return given
            }
            func keys() async throws -> [String] {
                try await store.perform { $0.read(.webhooks, $1) }.map(\.key)
            }
            func delete(_ key: String, _ definition: Webhook.Definition) async throws {
                let change = WebhookChange(key, nil, replacing: definition, AuditNote(.webhookDelete, of: key))
                #expect(try await store.write(.webhook(change, by: admin)))
            }
            try await store.putProject("shop")
            for _ in 0..<2 {
                try await store.putProject("app")
                let (ops, app) = (try await define("ops", of: nil), try await define("app", of: nil))
                _ = try await define("alarm", of: "app")
                let version = try #require(try store.datafileHistory(sdkKey: "app", limit: 1).first?.version)
                #expect(try await store.removeProject("app", expecting: version) == .removed)
                #expect(try await keys() == ["app", "ops"])
                try await delete("ops", ops)
                #expect(try await keys() == ["app"])
                try await delete("app", app)
                #expect(try await keys().isEmpty)
            }
        },
        StoreContract("Webhooks change in one transaction with other definitions, or none of them") {
            context async throws in
            let store = context.store
            func change(
                _ key: String, _ definition: Webhook.Definition?, replacing former: Webhook.Definition? = nil
            ) -> WebhookChange {
                let action: AuditAction = definition == nil ? .webhookDelete : .webhookPut
                return WebhookChange(key, definition, replacing: former, AuditNote(action, of: key))
            }
            func keys() async throws -> [String] {
                try await store.perform { $0.read(.webhooks, $1) }.map(\.key)
            }
            var schema = SchemaChange()
            schema.webhooks = [change("a", definition), change("b", definition)]
            #expect(try await store.activate("1", schema: schema) != nil)
            #expect(try await keys() == ["a", "b"])
            // One of them is there already.
            schema.webhooks = [change("c", definition), change("b", definition)]
            #expect(try await store.activate("2", schema: schema) == nil)
            #expect(try await !store.write(.putSchema(schema, by: admin)))
            #expect(try await keys() == ["a", "b"])
            schema.webhooks = [change("a", nil, replacing: definition), change("c", definition)]
            #expect(try await store.write(.putSchema(schema, by: admin)))
            #expect(try await keys() == ["b", "c"])
            let actions = try await store.audit { $0.limit = 10 }.map(\.action)
            #expect(actions == ["webhook.put", "webhook.delete", "datafile.put", "webhook.put", "webhook.put"])
        },
        StoreContract("One server at a time sends, until its claim ends") { context async throws in
            let store = context.store
            #expect(try await claim(store, "a") == nil)
            #expect(try await define(store))
            #expect(try await claim(store, "a")?.state.holder == "a")
            #expect(try await claim(store, "b") == nil)
            context.clock.advance(by: .milliseconds(900))
            // Each step renews it.
            let step = try await store.write(
                .advanceWebhook("ops", by: "a", for: 1_000) { state, now in
                    state.position = 5
                    state.add(
                        Webhook.Delivery(
                            eventID: "evt_5", event: "flag.put", attemptedAt: now, status: 500, failure: "no"))
                })
            #expect(step?.state.position == 5)
            context.clock.advance(by: .milliseconds(900))
            #expect(try await claim(store, "b") == nil)
            context.clock.advance(by: .milliseconds(200))
            #expect(try await claim(store, "b")?.state.position == 5)
            #expect(
                try await store.write(.advanceWebhook("ops", by: "a", for: 1_000) { state, _ in state.position = 9 })
                    == nil)
            #expect(try await webhook(store)?.state.deliveries.map(\.eventID) == ["evt_5"])
        },
        StoreContract("A webhook that is paused is not sent to, until it is enabled again, where it has stopped") {
            context async throws in
            let store = context.store
            #expect(try await define(store))
            _ = try await claim(store, "a")
            let note = AuditNote(.webhookPause, of: "ops")
            let paused = try await store.write(
                .advanceWebhook("ops", by: "a", for: 1_000, noting: note, author: admin) { state, now in
                    (state.position, state.failures, state.failingSince) = (7, 3, now)
                    (state.pause, state.holder) = ("it is gone", nil)
                })
            #expect(paused?.state.pause == "it is gone")
            #expect(try await store.audit().first?.action == "webhook.pause")
            #expect(try await claim(store, "a") == nil)
            #expect(try await define(store, replacing: definition))
            let resumed = try #require(try await claim(store, "a"))
            #expect(resumed.state.position == 7 && resumed.state.failures == 0 && resumed.state.failingSince == nil)
            #expect(try await define(store, replacing: definition, skips: true))
            #expect(try await webhook(store)?.state.position == 3)
        },
        StoreContract("What was found in an experiment is told once, and not again by a look that began before") {
            context async throws in
            let store = context.store
            func put(_ warnings: JSONValue, at time: Instant, after former: JSONValue?) async throws -> Bool {
                let finding = StoredLook(sdkKey: "shop", experimentID: "7", lookedAt: time, content: warnings)
                let note = AuditNote(.experimentWarning, of: "checkout", after: warnings, in: "shop")
                return try await store.write(.putFinding(finding, after: former, [note], by: admin))
            }
            #expect(try await put(["primary"], at: 10, after: nil))
            #expect(try await !put(["primary"], at: 11, after: nil))
            #expect(try await !put([], at: 9, after: ["primary"]))
            #expect(try await put([], at: 12, after: ["primary"]))
            #expect(try await store.perform { $0.read(.findings, $1) }.map(\.content) == [[]])
            #expect(try await store.audit().map(\.action) == ["experiment.warning", "experiment.warning"])
        },
    ]
}
