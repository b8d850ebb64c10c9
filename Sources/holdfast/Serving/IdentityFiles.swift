import Dispatch
import Glibc
import HoldfastAPI
import Logging
import Synchronization

/// The files of the sign-in: the public keys of the identity provider, and the map of claims to scopes.
struct IdentityFiles: Sendable {
    let keys: String
    let scopes: String
    let settings: IdentityProvider.Settings

    /// - Throws: ``Failure``, which names the file.
    func read() throws(Failure) -> IdentityProvider {
        let keySet = try Self.content(of: keys)
        let map = try Self.content(of: scopes)
        guard let text = String(validating: map, as: UTF8.self) else {
            throw Failure("the map of scopes \(scopes) must be UTF-8")
        }
        do throws(IdentityFileError) {
            return try IdentityProvider(settings, keys: keySet, scopes: text)
        } catch {
            throw Failure("the keys \(keys) with the map of scopes \(scopes): \(error)")
        }
    }

    private static let longest: off_t = 1 << 20

    private static func content(of path: String) throws(Failure) -> [UInt8] {
        do throws(Failure) {
            let file = try OpenFile(path: path)
            guard try file.status().st_size <= longest else { throw Failure("it has more than \(longest) bytes") }
            return try file.readToEnd()
        } catch {
            throw Failure("\(path) cannot be read: \(error)")
        }
    }

    /// What differs once a file was replaced or written.
    fileprivate var versions: [Int64] {
        [keys, scopes].flatMap { path -> [Int64] in
            var status = stat()
            guard stat(path, &status) == 0 else { return [] }
            return [
                Int64(status.st_ino), Int64(status.st_size), Int64(status.st_mtim.tv_sec),
                Int64(status.st_mtim.tv_nsec),
            ]
        }
    }
}

/// Reads the files again when they change, as providers change their keys. If they are not usable, the former stay active.
final class IdentityWatch {
    private let timer: any DispatchSourceTimer

    private static let interval = DispatchTimeInterval.seconds(2)

    init(_ files: IdentityFiles, _ access: AccessControl, _ logger: Logger) {
        timer = DispatchSource.makeTimerSource()
        let known = Mutex(files.versions)
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval)
        timer.setEventHandler {
            let versions = files.versions
            let isChanged = known.withLock { known in
                defer { known = versions }
                return known != versions
            }
            guard isChanged else { return }
            do throws(Failure) {
                access.replaceIdentity(try files.read())
                logger.notice("read the keys of the identity provider again", metadata: ["keys": "\(files.keys)"])
            } catch {
                logger.error(
                    "the keys of the identity provider were not read; the former stay active",
                    metadata: ["error": "\(error)"])
            }
        }
        timer.resume()
    }

    func cancel() {
        timer.cancel()
    }
}
