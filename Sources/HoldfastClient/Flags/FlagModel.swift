public import Observation

/// Flags for views: a view that reads a flag in its body is updated when that flag changes.
///
/// ```swift
/// struct CheckoutView: View {
///     @State private var flags = FlagModel(client: .shared)
///     var body: some View {
///         if flags.boolVariation(flagKey: "new-checkout", defaultValue: false) { NewCheckout() } else { Checkout() }
///     }
/// }
/// ```
///
/// On iOS 16 and its siblings, see `ObservableFlags`.
@available(iOS 17, macOS 14, tvOS 17, watchOS 10, visionOS 1, *)
public final class FlagModel: ObservedFlags, Observable {
    /// The client with the flags. The model retains it.
    public let client: HoldfastClient?
    private let registration = OwnedTokens()
    /// The flags that views have read.
    private let cells = Locked<[Key: Cell]>([:])

    /// The observable state of one flag.
    private final class Cell: Observable, Sendable {
        private let registrar = ObservationRegistrar()
        /// Stands for the flag's value in the registrar's key path; the value itself is in the client.
        private var value: Void { () }

        /// Registers the view that is being evaluated.
        func access() { registrar.access(self, keyPath: \.value) }

        /// Updates the registered views.
        func change() { registrar.withMutation(of: self, keyPath: \.value) {} }
    }

    /// - Parameter client: `nil` if the client could not start; all calls then return their defaults.
    public init(client: HoldfastClient?) {
        self.client = client
        guard let client else { return }
        registration.add(
            client.observeFlags { [cells] keys in
                Task { @MainActor in
                    let changed = cells.withLock { cells in keys.compactMap { cells[Key($0)] } }
                    for cell in changed { cell.change() }
                }
            })
    }

    public func willRead(_ flagKey: String) {
        let cell = cells.withLock { cells in
            let key = Key(flagKey)
            let cell = cells[key] ?? Cell()
            cells[key] = cell
            return cell
        }
        cell.access()
    }
}
