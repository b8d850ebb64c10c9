import Bucketing
import JSON
import TestSupport
import Testing

@testable import Definitions

/// What a table of members makes of bodies, of what is stored, and of files.
@Suite struct MemberTableTests {
    struct Bulb: Sendable, Equatable {
        var watts = 40.0
        var hours: Double?
    }

    struct Lamp: Sendable, Equatable {
        var name = ""
        var isOn = true
        var share = 100.0
        var note = ""
        var rooms: [Identifier]?
        var bulb = Bulb()
    }

    private static let bulb = MemberTable<Bulb>(
        "a bulb", blank: Bulb(), showing: ["age"],
        [
            Member("watts", \.watts, .number(1...100)),
            Member("hours", \.hours, Form<Double>.number(0...10).optional(), "", .cleared),
        ])

    private static let table = MemberTable<Lamp>(
        "a lamp", blank: Lamp(), showing: ["revision"],
        [
            Member("name", \.name, .text(atMost: 5), "What people call it.", .required(": what people call it")),
            Member("on", \.isOn, .bool, "", .init(isOwned: true)),
            Member("share", \.share, .number(0...100), "", .init(isCopied: true)) { min($0, $1) },
            Member("note", \.note, .text(atMost: 10), "", .cleared),
            Member(
                "rooms", \.rooms, Form<[Identifier]>.keys(1...2, of: "room").optional(), "",
                .init(isClearedByNull: true, isStored: true)),
            Member(
                "bulb", \.bulb, of: bulb,
                Form(
                    read: { _, _ in nil }, write: { ["watts": .shortest($0.watts)] },
                    stored: { $0.object?["watts"]?.double.map { Bulb(watts: $0) } }), "", .cleared),
        ])

    private static func read(_ body: JSONValue) throws -> Given<Lamp> { try table.read(body, key: "desk") }

    private static func shown(_ lamp: Lamp) -> JSONValue {
        var object = JSONObject()
        table.show(lamp, in: &object)
        return .object(object)
    }

    // MARK: Bodies

    @Test(
        arguments: [
            ([:], ["/name"], "`name` is required: what people call it"),
            (["name": nil], ["/name"], "`name` is required: what people call it"),
            (["name": "a", "nane": 1], ["/nane"], "a lamp must have no members but `key`, `name`, `on`, `share`"),
            (["name": "a", "key": "hall"], ["/key"], "`key` must be the key in the path, 'desk'; got 'hall'"),
            (["name": "lengthy"], ["/name"], "`name` must have at most 5 bytes; got 7"),
            (["name": "a", "on": 1], ["/on"], "`on` must be true or false; got a number"),
            (["name": "a", "share": 101], ["/share"], "`share` must be a number from 0 to 100; got 101.0"),
            (["name": "a", "rooms": []], ["/rooms"], "`rooms` must have 1 to 2 elements; got 0"),
            (["name": "a", "rooms": ["x", "x"]], ["/rooms/1"], "the rooms must differ; got 'x' twice"),
            (["name": "a", "bulb": 7], ["/bulb"], "a bulb must be an object; got a number"),
            (
                ["name": "a", "bulb": ["watts": 0, "age": 3, "colour": "red"]], ["/bulb/colour", "/bulb/watts"],
                "a bulb must have no members but `watts`, `hours`; got `colour`"
            ),
        ] as [(JSONValue, [String], String)])
    func `Every wrong member is refused in its place`(body: JSONValue, places: [String], text: String) throws {
        let refusal = try #require(throws: CoreError.self) { try Self.read(body) }
        #expect(refusal.kind == .unprocessable && refusal.faults.map(\.pointer.string) == places)
        #expect(refusal.faults.first?.reason.hasPrefix(text) == true, "\(refusal.faults)")
    }

    @Test func `What is no object is malformed`() throws {
        let refusal = try #require(throws: CoreError.self) { try Self.read([]) }
        #expect(refusal.kind == .invalid && refusal.detail == "a lamp must be an object; got an array")
    }

    private static let known = Lamp(
        name: "old", isOn: false, share: 50, note: "dim", rooms: ["hall"], bulb: Bulb(watts: 60, hours: 2))

    /// What a body makes of an element that has a value for each member.
    static let changes: [(body: JSONValue, expected: @Sendable (inout Lamp) -> Void)] = [
        ([:], { _ in }), (["revision": "7", "key": "desk"], { _ in }),
        (["on": true], { $0.isOn = true }), (["on": nil, "share": nil], { _ in }),
        (["note": nil], { $0.note = "" }), (["note": ""], { $0.note = "" }),
        (["rooms": nil], { $0.rooms = nil }), (["rooms": ["a", "b"]], { $0.rooms = ["a", "b"] }),
        (["share": 20], { $0.share = 20 }), (["share": 80], { _ in }),
        (["bulb": [:]], { _ in }), (["bulb": ["watts": 10]], { $0.bulb.watts = 10 }),
        (["bulb": ["hours": nil]], { $0.bulb.hours = nil }), (["bulb": nil], { $0.bulb = Bulb() }),
    ]

    @Test(arguments: changes.indices)
    func `A body sets what it has, null clears or counts as absent, and the rest stays`(index: Int) throws {
        let (body, expected) = Self.changes[index]
        var object = body.object ?? JSONObject()
        object["name"] = "new"
        var (lamp, wanted) = (Self.known, Self.known)
        Self.table.apply(try Self.read(.object(object)), to: &lamp)
        wanted.name = "new"
        expected(&wanted)
        #expect(lamp == wanted, "\(body)")
    }

    @Test func `A required member may be absent, but not null, if the element has a value`() {
        var faults = FaultCollector()
        var lamp = Self.known
        Self.table.apply(Self.table.read(JSONObject(), at: [], keeping: ["name"], &faults), to: &lamp)
        #expect(faults.faults.isEmpty && lamp == Self.known)
        _ = Self.table.read(
            JSONObject(.init(key: "name", value: .null)), at: [], keeping: ["name"], &faults)
        #expect(faults.faults.map(\.pointer.string) == ["/name"])
    }

    // MARK: What is shown, stored, copied and written to files

    @Test func `What has its default is shown, left out or null, as its traits say`() {
        #expect(Self.shown(Lamp()) == ["name": "", "on": true, "share": 100, "rooms": nil])
        #expect(
            Self.shown(Self.known) == [
                "name": "old", "on": false, "share": 50, "note": "dim", "rooms": ["hall"], "bulb": ["watts": 60],
            ])
    }

    @Test func `A file leaves out empty texts, null, what the owner says and what is excluded`() {
        func file(_ lamp: Lamp, isOwned: Bool = false, except excluded: Set<String> = []) -> JSONValue {
            var object = JSONObject()
            Self.table.writeFile(lamp, to: &object, isOwned: isOwned, except: excluded)
            return .object(object)
        }
        #expect(file(Lamp()) == ["on": true, "share": 100])
        #expect(
            file(Self.known, isOwned: true, except: ["share", "bulb"]) == [
                "name": "old", "note": "dim", "rooms": ["hall"],
            ])
    }

    @Test func `Only what differs from a new element is stored, and read however long it is`() {
        var object = JSONObject()
        object["note"] = "of another release"
        Self.table.store(Lamp(), in: &object)
        #expect(object.isEmpty && !Self.table.hasStored(Lamp()) && Self.table.hasStored(Self.known))
        Self.table.store(Self.known, in: &object)
        #expect(JSONValue.object(object) == ["note": "dim", "rooms": ["hall"], "bulb": ["watts": 60]])
        object["note"] = "longer than a body may have it"
        object["rooms"] = 7
        var lamp = Lamp()
        Self.table.readStored(object, into: &lamp)
        #expect(lamp.note == "longer than a body may have it" && lamp.rooms == [] && lamp.bulb.watts == 60)
    }

    @Test func `The table says what a copy takes over, what a file's absence means, and what the owner says`() {
        #expect(Self.table.copied == ["share", "note", "bulb"])
        #expect(Self.table.defaults == ["note": nil, "rooms": nil, "bulb": nil])
        #expect(Self.table.ownedNames == ["on"])
        #expect(Self.table.givenNames == ["key", "name", "on", "share", "note", "rooms", "bulb"])
    }
}
