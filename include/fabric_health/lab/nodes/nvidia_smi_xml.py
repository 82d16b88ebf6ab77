"""The document that `nvidia-smi -q -x` prints for Hopper boards, as templates.

Element names and their order follow documents of drivers 570 (DTD v12) and 580 (DTD v13). One space of indent here
is one TAB in the document; lines that are only a ``{name}`` are blocks (with their own line ends) that some driver
branches lack.
"""

from __future__ import annotations

import re

DEPRECATED = "Requested functionality has been deprecated"


def _tabs(text: str) -> str:
    text = re.sub(r"^ +", lambda m: "\t" * len(m.group()), text.strip("\n") + "\n", flags=re.M)
    return re.sub(r"^(\{\w+\})\n", r"\1", text, flags=re.M)


def leaf(depth: int, name: str, value: str) -> str:
    """Return one element with text at ``depth`` TABs."""
    return f"{chr(9) * depth}<{name}>{value}</{name}>\n"


HEAD = _tabs("""
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{dtd}.dtd">
<nvidia_smi_log>
 <timestamp>{timestamp}</timestamp>
 <driver_version>{driver}</driver_version>
 <cuda_version>{cuda}</cuda_version>
 <attached_gpus>{count}</attached_gpus>
""")

TAIL = "</nvidia_smi_log>\n"

RESET_STATUS = _tabs(f"""
  <gpu_reset_status>
   <reset_required>{DEPRECATED}</reset_required>
   <drain_and_reset_recommended>{DEPRECATED}</drain_and_reset_recommended>
  </gpu_reset_status>
""")

EVENT_COUNTERS = _tabs("""
  <clocks_event_reasons_counters>
   <clocks_event_reasons_counters_sw_power_cap>{power_cap_us} us</clocks_event_reasons_counters_sw_power_cap>
   <clocks_event_reasons_counters_sync_boost>0 us</clocks_event_reasons_counters_sync_boost>
   <clocks_event_reasons_counters_sw_therm_slowdown>0 us</clocks_event_reasons_counters_sw_therm_slowdown>
   <clocks_event_reasons_counters_hw_therm_slowdown>0 us</clocks_event_reasons_counters_hw_therm_slowdown>
   <clocks_event_reasons_counters_hw_power_brake>0 us</clocks_event_reasons_counters_hw_power_brake>
  </clocks_event_reasons_counters>
""")

ECC_REPAIR = _tabs("""
   <channel_repair_pending>No</channel_repair_pending>
   <tpc_repair_pending>No</tpc_repair_pending>
""")

GPU = _tabs("""
 <gpu id="{bus_id}">
  <product_name>{name}</product_name>
  <product_brand>NVIDIA</product_brand>
  <product_architecture>{architecture}</product_architecture>
  <display_mode>{display_mode}</display_mode>
{display_attached}
  <display_active>Disabled</display_active>
  <persistence_mode>{persistence}</persistence_mode>
  <addressing_mode>HMM</addressing_mode>
  <mig_mode>
   <current_mig>{mig}</current_mig>
   <pending_mig>{mig}</pending_mig>
  </mig_mode>
  <mig_devices>
   None
  </mig_devices>
  <accounting_mode>Disabled</accounting_mode>
  <accounting_mode_buffer_size>4000</accounting_mode_buffer_size>
  <driver_model>
   <current_dm>N/A</current_dm>
   <pending_dm>N/A</pending_dm>
  </driver_model>
  <serial>{serial}</serial>
  <uuid>{uuid}</uuid>
{pdi}
  <minor_number>{index}</minor_number>
  <vbios_version>{vbios}</vbios_version>
  <multigpu_board>No</multigpu_board>
  <board_id>{board_id}</board_id>
  <board_part_number>{board_part}</board_part_number>
  <gpu_part_number>{gpu_part}</gpu_part_number>
  <gpu_fru_part_number>N/A</gpu_fru_part_number>
  <platformInfo>
   <chassis_serial_number>N/A</chassis_serial_number>
   <slot_number>N/A</slot_number>
   <tray_index>N/A</tray_index>
   <host_id>N/A</host_id>
   <peer_type>N/A</peer_type>
   <module_id>{module}</module_id>
   <gpu_fabric_guid>N/A</gpu_fabric_guid>
  </platformInfo>
  <inforom_version>
   <img_version>G520.0200.00.05</img_version>
   <oem_object>2.1</oem_object>
   <ecc_object>7.16</ecc_object>
   <pwr_object>N/A</pwr_object>
  </inforom_version>
  <inforom_bbx_flush>
   <latest_timestamp>{flushed}</latest_timestamp>
   <latest_duration>{flush_us} us</latest_duration>
  </inforom_bbx_flush>
  <gpu_operation_mode>
   <current_gom>N/A</current_gom>
   <pending_gom>N/A</pending_gom>
  </gpu_operation_mode>
  <c2c_mode>Disabled</c2c_mode>
  <gpu_virtualization_mode>
   <virtualization_mode>None</virtualization_mode>
   <host_vgpu_mode>N/A</host_vgpu_mode>
   <vgpu_heterogeneous_mode>N/A</vgpu_heterogeneous_mode>
  </gpu_virtualization_mode>
{reset_status}
  <gpu_recovery_action>None</gpu_recovery_action>
  <gsp_firmware_version>{gsp}</gsp_firmware_version>
  <ibmnpu>
   <relaxed_ordering_mode>N/A</relaxed_ordering_mode>
  </ibmnpu>
  <pci>
   <pci_bus>{pci_bus}</pci_bus>
   <pci_device>00</pci_device>
   <pci_domain>0000</pci_domain>
   <pci_base_class>3</pci_base_class>
   <pci_sub_class>2</pci_sub_class>
   <pci_device_id>{pci_device}10DE</pci_device_id>
   <pci_bus_id>{bus_id}</pci_bus_id>
   <pci_sub_system_id>{subsystem}10DE</pci_sub_system_id>
   <pci_gpu_link_info>
    <pcie_gen>
     <max_link_gen>{gen}</max_link_gen>
     <current_link_gen>{gen}</current_link_gen>
     <device_current_link_gen>{gen}</device_current_link_gen>
     <max_device_link_gen>{gen}</max_device_link_gen>
     <max_host_link_gen>N/A</max_host_link_gen>
    </pcie_gen>
    <link_widths>
     <max_link_width>{width_max}x</max_link_width>
     <current_link_width>{width}x</current_link_width>
    </link_widths>
   </pci_gpu_link_info>
   <pci_bridge_chip>
    <bridge_chip_type>N/A</bridge_chip_type>
    <bridge_chip_fw>N/A</bridge_chip_fw>
   </pci_bridge_chip>
   <replay_counter>{replays}</replay_counter>
   <replay_rollover_counter>0</replay_rollover_counter>
   <tx_util>{tx_util} KB/s</tx_util>
   <rx_util>{rx_util} KB/s</rx_util>
   <atomic_caps_outbound>N/A</atomic_caps_outbound>
   <atomic_caps_inbound>N/A</atomic_caps_inbound>
  </pci>
  <fan_speed>N/A</fan_speed>
  <performance_state>P0</performance_state>
  <clocks_event_reasons>
   <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
   <clocks_event_reason_applications_clocks_setting>Not Active</clocks_event_reason_applications_clocks_setting>
   <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
   <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
   <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
   <clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
   <clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
   <clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
   <clocks_event_reason_display_clocks_setting>Not Active</clocks_event_reason_display_clocks_setting>
  </clocks_event_reasons>
{event_counters}
  <sparse_operation_mode>Disabled</sparse_operation_mode>
  <fb_memory_usage>
   <total>{memory} MiB</total>
   <reserved>480 MiB</reserved>
   <used>0 MiB</used>
   <free>{memory_free} MiB</free>
  </fb_memory_usage>
  <bar1_memory_usage>
   <total>{bar1} MiB</total>
   <used>1 MiB</used>
   <free>{bar1_free} MiB</free>
  </bar1_memory_usage>
  <cc_protected_memory_usage>
   <total>0 MiB</total>
   <used>0 MiB</used>
   <free>0 MiB</free>
  </cc_protected_memory_usage>
  <compute_mode>Default</compute_mode>
  <utilization>
   <gpu_util>0 %</gpu_util>
   <memory_util>0 %</memory_util>
   <encoder_util>0 %</encoder_util>
   <decoder_util>0 %</decoder_util>
   <jpeg_util>0 %</jpeg_util>
   <ofa_util>0 %</ofa_util>
  </utilization>
  <encoder_stats>
   <session_count>0</session_count>
   <average_fps>0</average_fps>
   <average_latency>0</average_latency>
  </encoder_stats>
  <fbc_stats>
   <session_count>0</session_count>
   <average_fps>0</average_fps>
   <average_latency>0</average_latency>
  </fbc_stats>
  <dram_encryption_mode>
   <current_dram_encryption>N/A</current_dram_encryption>
   <pending_dram_encryption>N/A</pending_dram_encryption>
  </dram_encryption_mode>
  <ecc_mode>
   <current_ecc>{ecc}</current_ecc>
   <pending_ecc>{ecc}</pending_ecc>
  </ecc_mode>
  <ecc_errors>
   <volatile>
    <sram_correctable>0</sram_correctable>
    <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
    <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
    <dram_correctable>0</dram_correctable>
    <dram_uncorrectable>{dram_uncorrectable}</dram_uncorrectable>
   </volatile>
   <aggregate>
    <sram_correctable>0</sram_correctable>
    <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
    <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
    <dram_correctable>{dram_correctable}</dram_correctable>
    <dram_uncorrectable>{dram_uncorrectable}</dram_uncorrectable>
    <sram_threshold_exceeded>No</sram_threshold_exceeded>
   </aggregate>
   <aggregate_uncorrectable_sram_sources>
    <sram_l2>0</sram_l2>
    <sram_sm>0</sram_sm>
    <sram_microcontroller>0</sram_microcontroller>
    <sram_pcie>0</sram_pcie>
    <sram_other>0</sram_other>
   </aggregate_uncorrectable_sram_sources>
{ecc_repair}
  </ecc_errors>
  <retired_pages>
   <multiple_single_bit_retirement>
    <retired_count>N/A</retired_count>
    <retired_pagelist>N/A</retired_pagelist>
   </multiple_single_bit_retirement>
   <double_bit_retirement>
    <retired_count>N/A</retired_count>
    <retired_pagelist>N/A</retired_pagelist>
   </double_bit_retirement>
   <pending_blacklist>N/A</pending_blacklist>
   <pending_retirement>N/A</pending_retirement>
  </retired_pages>
  <remapped_rows>
   <remapped_row_corr>0</remapped_row_corr>
   <remapped_row_unc>{remapped}</remapped_row_unc>
   <remapped_row_pending>{remap_pending}</remapped_row_pending>
   <remapped_row_failure>No</remapped_row_failure>
   <row_remapper_histogram>
    <row_remapper_histogram_max>{banks_max} bank(s)</row_remapper_histogram_max>
    <row_remapper_histogram_high>{remapped} bank(s)</row_remapper_histogram_high>
    <row_remapper_histogram_partial>0 bank(s)</row_remapper_histogram_partial>
    <row_remapper_histogram_low>0 bank(s)</row_remapper_histogram_low>
    <row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none>
   </row_remapper_histogram>
  </remapped_rows>
  <temperature>
   <gpu_temp>{temp} C</gpu_temp>
   <gpu_temp_tlimit>{tlimit} C</gpu_temp_tlimit>
   <gpu_temp_max_tlimit_threshold>-8 C</gpu_temp_max_tlimit_threshold>
   <gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
   <gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold>
   <gpu_target_temperature>N/A</gpu_target_temperature>
   <memory_temp>{memory_temp} C</memory_temp>
   <gpu_temp_max_mem_tlimit_threshold>0 C</gpu_temp_max_mem_tlimit_threshold>
  </temperature>
  <supported_gpu_target_temp>
   <gpu_target_temp_min>N/A</gpu_target_temp_min>
   <gpu_target_temp_max>N/A</gpu_target_temp_max>
  </supported_gpu_target_temp>
  <gpu_power_readings>
   <power_state>P0</power_state>
   <average_power_draw>{power} W</average_power_draw>
   <instant_power_draw>{power} W</instant_power_draw>
   <current_power_limit>{power_limit} W</current_power_limit>
   <requested_power_limit>{power_limit} W</requested_power_limit>
   <default_power_limit>{power_limit} W</default_power_limit>
   <min_power_limit>200.00 W</min_power_limit>
   <max_power_limit>{power_limit} W</max_power_limit>
  </gpu_power_readings>
  <gpu_memory_power_readings>
   <average_power_draw>{memory_power} W</average_power_draw>
   <instant_power_draw>N/A</instant_power_draw>
  </gpu_memory_power_readings>
  <module_power_readings>
   <power_state>P0</power_state>
   <average_power_draw>N/A</average_power_draw>
   <instant_power_draw>N/A</instant_power_draw>
   <current_power_limit>N/A</current_power_limit>
   <requested_power_limit>N/A</requested_power_limit>
   <default_power_limit>N/A</default_power_limit>
   <min_power_limit>N/A</min_power_limit>
   <max_power_limit>N/A</max_power_limit>
  </module_power_readings>
  <power_smoothing>N/A</power_smoothing>
  <power_profiles>
   <power_profile_requested_profiles>N/A</power_profile_requested_profiles>
   <power_profile_enforced_profiles>N/A</power_profile_enforced_profiles>
  </power_profiles>
  <clocks>
   <graphics_clock>345 MHz</graphics_clock>
   <sm_clock>345 MHz</sm_clock>
   <mem_clock>{mem_clock} MHz</mem_clock>
   <video_clock>765 MHz</video_clock>
  </clocks>
  <applications_clocks>
   <graphics_clock>{sm_clock} MHz</graphics_clock>
   <mem_clock>{mem_clock} MHz</mem_clock>
  </applications_clocks>
  <default_applications_clocks>
   <graphics_clock>{sm_clock} MHz</graphics_clock>
   <mem_clock>{mem_clock} MHz</mem_clock>
  </default_applications_clocks>
  <deferred_clocks>
   <mem_clock>N/A</mem_clock>
  </deferred_clocks>
  <max_clocks>
   <graphics_clock>{sm_clock} MHz</graphics_clock>
   <sm_clock>{sm_clock} MHz</sm_clock>
   <mem_clock>{mem_clock} MHz</mem_clock>
   <video_clock>1545 MHz</video_clock>
  </max_clocks>
  <max_customer_boost_clocks>
   <graphics_clock>{sm_clock} MHz</graphics_clock>
  </max_customer_boost_clocks>
  <clock_policy>
   <auto_boost>N/A</auto_boost>
   <auto_boost_default>N/A</auto_boost_default>
  </clock_policy>
  <fabric>
   <state>Completed</state>
   <status>Success</status>
   <cliqueId>0</cliqueId>
   <clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid>
   <health>
{health_summary}
    <bandwidth>N/A</bandwidth>
    <route_recovery_in_progress>N/A</route_recovery_in_progress>
    <route_unhealthy>N/A</route_unhealthy>
    <access_timeout_recovery>N/A</access_timeout_recovery>
{health_configuration}
   </health>
  </fabric>
  <supported_clocks>
   <supported_mem_clock>
    <value>{mem_clock} MHz</value>
{graphics_clocks}
   </supported_mem_clock>
  </supported_clocks>
  <processes>
  </processes>
  <accounted_processes>
  </accounted_processes>
  <capabilities>
   <egm>disabled</egm>
  </capabilities>
 </gpu>
""")
