import Foundation
import HoldfastClient
import Security

// The code of the article SplitTests that needs the Keychain; ArticleTests compares the two.

struct KeychainSplitTestStorage: SplitTestStorage {
    func string(forKey key: String) throws -> String? {
        let query: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword, kSecAttrService: "split-tests", kSecAttrAccount: key,
            kSecReturnData: true,
        ]
        var item: CFTypeRef?
        switch SecItemCopyMatching(query as CFDictionary, &item) {
        case errSecSuccess: return (item as? Data).map { String(decoding: $0, as: UTF8.self) }
        case errSecItemNotFound: return nil
        case let status: throw NSError(domain: NSOSStatusErrorDomain, code: Int(status))
        }
    }

    func set(_ value: String?, forKey key: String) throws {
        let query: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword, kSecAttrService: "split-tests", kSecAttrAccount: key,
        ]
        SecItemDelete(query as CFDictionary)
        guard let value else { return }
        let item = query.merging([kSecValueData: Data(value.utf8)]) { $1 }
        let status = SecItemAdd(item as CFDictionary, nil)
        guard status == errSecSuccess else { throw NSError(domain: NSOSStatusErrorDomain, code: Int(status)) }
    }
}
