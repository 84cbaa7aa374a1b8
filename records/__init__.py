"""What has been trained and measured: folders under runs/, tables under results/."""
