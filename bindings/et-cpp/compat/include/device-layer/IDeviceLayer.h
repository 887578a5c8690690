// Which devices a runtime opens, by the original's names.

#ifndef DEV_IDEVICELAYER_H
#define DEV_IDEVICELAYER_H

#include <cstdint>
#include <memory>
#include <string>

namespace emu {

// Options of the original's emulator. Only `minionShiresMask` means something to the simulator; the
// firmware files are not needed.
struct SysEmuOptions {
  std::string bootromTrampolineToBL2ElfPath;
  std::string spBL2ElfPath;
  std::string machineMinionElfPath;
  std::string masterMinionElfPath;
  std::string workerMinionElfPath;
  std::string executablePath;
  std::string runDir;
  std::string logFile;
  std::string pcieMaxLinkSpeed;
  std::string puUart0Path;
  std::string puUart1Path;
  std::string spUart0Path;
  std::string spUart1Path;
  std::string spUart1FifoOutPath;
  std::string spUart1FifoInPath;
  std::string additionalOptions;
  std::uint64_t maxCycles = 0;
  // Bit 32 is the shire of the firmware.
  std::uint64_t minionShiresMask = 0x1FFFFFFFF;
  bool startGdb = false;
  bool memcheck = false;
};

} // namespace emu

namespace dev {

class IDeviceLayer {
public:
  virtual ~IDeviceLayer() = default;

  // The devices that the environment variable ET_DEVICE names by their locators, with blanks
  // between. Without it the card, if exactly one can be opened, else the simulator.
  static std::unique_ptr<IDeviceLayer> createPcieDeviceLayer(bool enableMasterMinion = true,
                                                             bool enableServiceProcessor = true);
  // Simulated cards; ET_DEVICE is not looked at.
  static std::unique_ptr<IDeviceLayer> createSysEmuDeviceLayer(const emu::SysEmuOptions& options,
                                                               std::uint8_t numDevices = 1);

  virtual int getDevicesCount() const = 0;
  // Locator of a device; an addition to the original.
  virtual std::string getLocator(int device) const = 0;
};

} // namespace dev

#endif // DEV_IDEVICELAYER_H
