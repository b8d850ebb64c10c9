public import JSON
internal import Synchronization

// What copies of an element share.

/// An element as a datafile has it, with its text, which is made once.
public final class WrittenElement: Sendable, Equatable {
    public static let empty = WrittenElement(JSONObject())

    public let object: JSONObject
    private let known = Mutex<[UInt8]?>(nil)

    public init(_ object: JSONObject) { self.object = object }

    public var text: [UInt8] {
        known.withLock { known in
            let text = known ?? JSONValue.object(object).encoded()
            known = text
            return text
        }
    }

    public static func == (left: WrittenElement, right: WrittenElement) -> Bool {
        left === right || left.object == right.object
    }
}

/// A part of an element that copies share until one of them changes it. Elements are copied often, and such parts are large
/// and change rarely.
@propertyWrapper
public struct SharedPart<Part: Sendable & Equatable>: Sendable, Equatable {
    private final class Box: Sendable {
        let part: Part

        init(_ part: Part) { self.part = part }
    }

    private var box: Box

    public init(wrappedValue part: Part) { box = Box(part) }

    public var wrappedValue: Part {
        // Without a copy of the part.
        _read { yield box.part }
        set { box = Box(newValue) }
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.box === right.box || left.box.part == right.box.part
    }
}
