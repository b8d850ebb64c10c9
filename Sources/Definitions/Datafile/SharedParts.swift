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
