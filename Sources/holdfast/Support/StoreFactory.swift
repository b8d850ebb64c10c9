import Logging
import Storage

/// The only place that picks a store.
enum StoreFactory {
    static func open(_ configuration: ServeConfiguration, _ logger: Logger) throws -> any ProfileStore {
        InMemoryProfileStore()
    }
}
